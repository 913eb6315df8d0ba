# Scripts that wait for a status word, then read what the job has, and go into it.
runai project set team-c
runai submit build -i python -g 0.5 --interactive --command sleep --args infinity
until runai list | awk '$1 == "build" { found = $2 == "Running" } END { exit !found }'; do sleep 0.2; done
[ "$(runai get build | awk '/^STATUS:/ { print $2 }')" = Running ]
runai get build | sed -n '/^Pods:/,/^$/p' | grep -q '^build-0 .*RUNNING'
[ "$(runai exec build -- sh -c 'echo $RUNAI_NUM_OF_GPUS')" = 0.5 ]
runai list -A | grep -c '^build ' | grep -qx 1
runai list | tail -1 | grep -Eq '^build +Running +[0-9]+[smhdy] +dgx1-real-[12] +python +Interactive +team-c +[^ ]+ +0\.5 +true *$'
