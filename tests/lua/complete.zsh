# What zsh makes of the line when Tab is pressed at its end: the line, and below it the possible completions.
#
#     zsh -f tests/lua/complete.zsh FOLDER_OF_COMPLETIONS PATH "mgpulua --dev"
#
# A second zsh, at a pseudo-terminal, reads the keys one after another, so nothing depends on time.
zmodload zsh/zpty
zpty terminal zsh -f -i
zpty -w terminal "PS1= PROMPT_EOL_MARK= fpath=(${(q)1} \$fpath) path=(${(q)2} \$path)"
zpty -w terminal 'autoload -U compinit; compinit -u -D; LISTMAX=1000; bindkey "^I" complete-word'
zpty -w terminal 'show-end() { zle kill-buffer; print THE-END }; zle -N show-end; bindkey "^X" show-end'
zpty -w terminal 'print THE-''START'
zpty -r terminal output '*THE-START*'
zpty -w -n terminal "$3"$'\t\x18'
zpty -r terminal output '*THE-END*'
print -r -- "$output"
zpty -d terminal
