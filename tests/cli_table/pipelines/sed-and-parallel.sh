# The other half of the habit: skip the title with sed, take the names with awk, delete them side by side.
runai config project team-b
for number in 1 2 3; do
    runai submit "trial-$number" -i localhost/shell:1 -e STEP="$number" -- sh -c 'echo "step $STEP"'
done
until [ "$(runai list jobs | sed 1d | awk '$2 == "Succeeded"' | wc -l)" = 3 ]; do sleep 0.3; done
for job in $(runai list jobs | sed 1,2d | awk '{print $1}' | sort); do
    runai logs "$job"
done | paste -sd' ' - | grep -qx "step 1 step 2 step 3"
runai list jobs | sed 1,2d | grep " Succeeded " | awk '{print $1}' | xargs -n 1 -P 3 runai delete job
until [ -z "$(runai list jobs --no-headers)" ]; do sleep 0.2; done
