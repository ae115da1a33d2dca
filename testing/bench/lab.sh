# Sourced by the scripts beside it: a directory for their files, an end for what they start, and the origin.
#
# Gives dir; pids, to which they add what they start; nginx_main and nginx_http, with which configurations of nginx begin, before and in `http`; and
# $dir/origin.conf, an nginx of one process on port 9560 that answers everything with "hello world".
# shellcheck shell=bash disable=SC2034
dir=$(mktemp -d)
pids=()
end() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT

nginx_main="daemon off; master_process off; worker_processes 1; error_log $dir/e.log crit; events { worker_connections 16384; }"
nginx_http="access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; default_type text/plain;
  client_body_temp_path $dir/b; proxy_temp_path $dir/p; fastcgi_temp_path $dir/f; uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;"
cat >"$dir/origin.conf" <<END
$nginx_main pid $dir/origin.pid;
http { $nginx_http
  server { listen 127.0.0.1:9560 backlog=4096; location / { return 200 "hello world\n"; } } }
END
