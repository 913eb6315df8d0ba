#!/bin/sh
# Stands in for Jupyter: a web server on the notebook's port that answers below the notebook's base URL.
base=/
port=8888
for argument in "$@"; do
    case $argument in
    --NotebookApp.base_url=*) base=/${argument#*=}; base=/${base##/}/ ;;
    --NotebookApp.port=*) port=${argument#*=} ;;
    esac
done
base=$(echo "$base" | sed 's://*:/:g')
mkdir -p "/tmp/www$base"
token=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
echo "<title>Jupyter stand-in</title><p>$(hostname)</p>" >"/tmp/www${base}index.html"
echo "[I NotebookApp] Serving notebooks from local directory: $(pwd)"
echo "[I NotebookApp] http://$(hostname):$port$base?token=$token"
exec httpd -f -p "$port" -h /tmp/www
