#!/bin/sh
# slurm_cluster.sh DIR PORT PID: a SLURM of three nodes, n1 to n3 with two CPUs each, on this machine, for root. All its
# files are in DIR, also the key and the socket of a munged; it uses the ports PORT to PORT + 3. Prints "ready" when jobs
# can be submitted with SLURM_CONF=DIR/slurm.conf. It ends with process PID, or by `slurm_cluster.sh DIR stop`.
set -eu
PATH=$PATH:/usr/sbin
dir=$1
host=$(hostname -s)
# They write to DIR until they have ended.
stop() {
  pids=$(cat "$dir"/*.pid 2>/dev/null || true)
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do
    for i in $(seq 100); do
      case $(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) in '' | Z) break ;; esac
      sleep 0.1
    done
  done
}
if [ "$2" = stop ]; then
  stop
  exit
fi
mkdir -p "$dir/state"
chmod 755 "$dir"
head -c 128 /dev/urandom >"$dir/key"
chmod 600 "$dir/key"
munged --force --socket="$dir/munge" --key-file="$dir/key" --pid-file="$dir/munged.pid" \
  --log-file="$dir/munged.log" --seed-file="$dir/seed" >"$dir/munged.out" 2>&1
cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$2
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge
CredType=cred/munge
FirstJobId=$(($2 * 10))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName=n[1-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$(($2 + 1))-$(($2 + 3))] CPUs=2 RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
export SLURM_CONF="$dir/slurm.conf"
slurmctld
for node in n1 n2 n3; do slurmd -N "$node"; done
for i in $(seq 300); do
  if [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 3 ]; then
    (while kill -0 "$3" 2>/dev/null; do sleep 1; done; stop) >/dev/null 2>&1 &
    echo ready
    exit
  fi
  sleep 0.1
done
tail -n 3 "$dir"/*.log
stop
