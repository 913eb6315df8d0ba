# Users of EPFL's cluster delete what has succeeded: runai list | grep " Succeeded " | awk '{print $1}' | parallel runai delete job {}
runai project set team-a
for name in done-1 done-2; do
    runai submit "$name" -i localhost/shell:1 --command true
done
runai submit going -i gcr.io/run-ai-demo/quickstart
until [ "$(runai list | grep -c " Succeeded ")" = 2 ] && runai list | grep -q "^going .* Running\|^going  *Running "; do sleep 0.2; done
runai list | grep " Succeeded " | awk '{print $1}' | xargs runai delete
until [ "$(runai list | sed 1,2d | awk '{print $1}')" = going ]; do sleep 0.2; done
