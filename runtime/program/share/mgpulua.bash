# Completion of mgpulua's command line in bash.

_mgpulua() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i
  COMPREPLY=()
  # behind the script, everything is the script's: files
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --runs)
        compopt -o filenames
        if [[ $word == -* ]]; then
          mapfile -t COMPREPLY < <(compgen -W "$("$1" --runs --help 2>/dev/null | sed -n 's/^  \(--[a-z]*\).*/\1/p')" -- "$word")
        else
          mapfile -t COMPREPLY < <(compgen -d -- "$word")
        fi
        return
        ;;
      -e | -l | -j | -H | --devices | --resume | --verify | --prove | --profile | --serve | --selftest | --np | --hostfile | --output | --nranks_per_gpu | --restart | --elastic) ((i++)) ;;
      --pack)
        [[ $before == --data || $before == -o || $word != -* ]] && compopt -o default && return
        mapfile -t COMPREPLY < <(compgen -W "-o --model --data --module --plugin --list --c --name --batch --help" -- "$word")
        return
        ;;
      --) break ;;
      -*) ;;
      *)
        compopt -o default
        return
        ;;
    esac
  done
  case $before in
    --resume | --verify)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -d -- "$word")
      return
      ;;
    --devices)
      mapfile -t COMPREPLY < <(compgen -W "$("$1" --list-devices 2>/dev/null | sed -n 's/^\([a-z]*:[0-9]*\) .*/\1/p') cpu cuda" -- "$word")
      __ltrim_colon_completions "$word" 2>/dev/null
      return
      ;;
    --output)
      mapfile -t COMPREPLY < <(compgen -W "rank0 all prefix" -- "$word")
      return
      ;;
    --hostfile | --profile | --serve)
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return
      ;;
    -j)
      mapfile -t COMPREPLY < <(compgen -W "on off flush v dump p" -- "$word")
      return
      ;;
    -e | -l | -H | --np | --nranks_per_gpu) return ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "-e -l -i -v -E -j -O -b -H --bytecode --devices --np --hostfile --output
      --nranks_per_gpu --restart --elastic --resume --dashboard --prove --profile --pack --serve --selftest --verify --attach --ps --runs --list-devices --doctor --version --help" -- "$word")
  else
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.lua' -- "$word")
  fi
}
complete -F _mgpulua mgpulua
