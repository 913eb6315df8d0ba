# The first five columns and the status of every job, taken with sed and awk, without any of them missing.
runai project set team-a
runai submit one -i gcr.io/run-ai-demo/quickstart -g 1
runai submit waits -i gcr.io/run-ai-demo/quickstart -g 8 --interactive
until [ "$(runai list | awk '$1 == "one" { print $2 }')" = Running ]; do sleep 0.2; done
[ "$(runai list | sed 1d | head -1 | awk '{print $1, $2, $3, $4, $5}')" = "NAME STATUS AGE NODE IMAGE" ]
[ "$(runai list | sed 1,2d | wc -l)" = 2 ]
[ "$(runai list | awk '$1 == "one" { print $5, $6, $7, $9 }')" = "gcr.io/run-ai-demo/quickstart Train team-a 1" ]
runai list | awk '$1 == "one" { print $4 }' | grep -q '^dgx1-real-[12]$'
runai list | awk '$1 == "waits" { print $2, $6 }' | grep -qx "Pending Interactive"
runai list -A | sed 1d | awk '{print $2}' | sort | uniq -c | awk '{print $2 "=" $1}' | grep -qx Running=1
