# Starts $1 processes of the program behind it, as ranks 0, 1 ... of a store (peers.h):
#
#     sh plain.sh N PROGRAM ARGUMENTS...
#
# The exit status is that of rank 0 if it fails, else that of another that fails.
n=$1; shift
store=$(mktemp -d)
processes=
status=0
for rank in $(seq 0 $((n - 1))); do
  PEER_RANK=$rank PEER_SIZE=$n PEER_STORE=$store "$@" &
  processes="$! $processes"
done
for process in $processes; do wait "$process" || status=$?; done
rm -r "$store"
exit $status
