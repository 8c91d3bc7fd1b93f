# What .ci/run does with the examples: each starts, serves a client, and ends on SIGTERM. Sourced.

# Starts an example and leaves its pid in $pid and its port in $port.
start() {
    local name=$1
    shift
    : >"$scratch/$name"
    "$target/debug/examples/$name" --port 0 "$@" </dev/null >"$scratch/$name" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$scratch/$name")
        [ -n "$port" ] && return
        sleep 0.05
    done
    cat "$scratch/$name"
    die "$name does not listen"
}

# Ends an example: $1 names it, $2 is its pid.
stop() {
    local status=0
    kill -TERM "$2"
    for _ in $(seq 200); do
        kill -0 "$2" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$2" 2>/dev/null && die "$1 did not end on SIGTERM"
    wait "$2" || status=$?
    [ "$status" = 0 ] || { cat "$scratch/$1"; die "$1 ended with status $status"; }
    echo "$1: ok"
}

# Says a line to a TCP port and expects to hear it again.
expect_echo() {
    local heard=
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    echo "$2" >&3
    read -r -t 10 heard <&3 || true
    exec 3>&-
    [ "$heard" = "$2" ] || die "said '$2' to port $1, heard '$heard'"
}

# Fetches $1 with curl's options after it: the body to $scratch/fetched, the status to $status.
fetch() {
    local path=$1
    shift
    status=$(curl -sS --max-time 20 --path-as-is -o "$scratch/fetched" -w '%{http_code}' "$@" \
        "http://127.0.0.1:$port/$path")
}

gate_examples() {
    section "examples: each starts, serves, and ends on SIGTERM"
    # With the features of the tests, which have built them.
    limit 900 cargo build --workspace --features "$full" --examples

    start echo
    echo_pid=$pid echo_port=$port
    expect_echo "$echo_port" "hello"
    start proxy --to "127.0.0.1:$echo_port"
    for i in 1 2 3; do
        expect_echo "$port" "through the proxy $i"
    done
    stop proxy "$pid"
    stop echo "$echo_pid"

    start udp_echo
    # One byte, because the shell reads byte by byte and a datagram is gone after the first.
    exec 3<>"/dev/udp/127.0.0.1/$port"
    printf '!' >&3
    read -r -n 1 -t 10 heard <&3 || true
    exec 3>&-
    [ "$heard" = "!" ] || die "udp_echo answers '$heard'"
    stop udp_echo "$pid"

    start reuseport --threads 2
    for i in 1 2 3 4 5 6 7 8; do
        expect_echo "$port" "connection $i"
    done
    stop reuseport "$pid"

    start acceptor --threads 2
    for i in 1 2 3 4 5 6 7 8; do
        expect_echo "$port" "connection $i"
    done
    stop acceptor "$pid"
    grep -qx "loop 1: 4 connections" "$scratch/acceptor" || die "acceptor does not take turns"

    start reactor_echo
    for i in 1 2 3; do
        expect_echo "$port" "by readiness $i"
    done
    stop reactor_echo "$pid"

    start framing
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    # The answer to the first message proves that half of the second has come.
    printf '\0\0\0\1a\0\0\0\5he' >&3
    timeout 10 head -c 5 <&3 >"$scratch/heard"
    printf 'llo\0\0\0\3abc' >&3
    timeout 10 head -c 16 <&3 >>"$scratch/heard"
    exec 3>&-
    printf '\0\0\0\1a\0\0\0\5olleh\0\0\0\3cba' | cmp - "$scratch/heard" \
        || die "framing: the answers are other ones"
    stop framing "$pid"

    start push --interval 20
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    for i in 1 2 3; do
        read -r -t 10 line <&3 || die "push does not push"
    done
    [[ $line == tick* ]] || die "push pushes '$line'"
    exec 3>&-
    stop push "$pid"

    start chat
    exec 3<>"/dev/tcp/127.0.0.1/$port" 4<>"/dev/tcp/127.0.0.1/$port"
    # The server passes lines on once both clients are accepted: the second client repeats its line
    # until the first client receives it.
    for i in $(seq 50); do
        echo "good morning" >&4
        read -r -t 0.2 line <&3 && break
    done
    [ "$line" = "good morning" ] || die "chat says '$line'"
    exec 3>&- 4>&-
    stop chat "$pid"

    # Files that do not fill a page, behind a name that has to be decoded, and one beside the
    # directory.
    mkdir -p "$scratch/tree/sub"
    head -c 3000001 /dev/urandom >"$scratch/tree/large"
    head -c 100 /dev/urandom >"$scratch/tree/sub/a b"
    echo "not yours" >"$scratch/secret"
    ln -s ../secret "$scratch/tree/out"

    direct=--direct
    if ! dd if=/dev/zero of="$scratch/direct" bs=4096 count=1 oflag=direct 2>/dev/null; then
        skip "examples on direct I/O: the file system of $scratch has none"
        direct=
    fi

    for how in "--depth 3 --block 50000" "$direct"; do
        # shellcheck disable=SC2086
        limit 60 "$target/debug/examples/copy" "$scratch/tree/large" "$scratch/copied" $how
        cmp "$scratch/tree/large" "$scratch/copied"
    done

    for i in 1 2; do
        limit 120 "$target/debug/examples/log" "$scratch/log" --producers 20 --records 100
        printf 'what a crash leaves' >>"$scratch/log"
    done

    limit 60 "$target/debug/examples/sim_test"
    limit 60 "$target/debug/examples/job"
    # Every operation that the driver accepts ends.
    local seen=$scratch/own_driver
    limit 60 "$target/debug/examples/own_driver" >"$seen"
    if [ "$(grep -c '^→' "$seen")" != 6 ] || [ "$(grep -c '^←' "$seen")" != 6 ]; then
        cat "$seen"
        die "own_driver does not see six operations and their ends"
    fi

    limit 60 "$target/debug/examples/explain" | grep -E '^(driver|read|write|accept) '

    serve_redis

    start echo
    echo_pid=$pid echo_port=$port
    start serve_proxy --to "127.0.0.1:$echo_port" --loops 2
    for i in 1 2 3; do
        expect_echo "$port" "through the proxy with callbacks $i"
    done
    stop serve_proxy "$pid"
    stop echo "$echo_pid"

    start serve_broadcast --interval 20 --loops 2
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    for i in 1 2 3; do
        read -r -t 10 line <&3 || die "serve_broadcast sends nothing"
    done
    [[ $line == "message "* ]] || die "serve_broadcast sends '$line'"
    exec 3>&-
    stop serve_broadcast "$pid"

    for mode in nonblocking blocking mixed; do
        start nbio_echo --mode "$mode"
        for i in 1 2 3; do
            expect_echo "$port" "$mode $i"
        done
        stop nbio_echo "$pid"
    done

    # One client never reads, and the other one gets every message.
    for mode in nonblocking blocking mixed; do
        start slow_consumer --mode "$mode" --interval 5 --size 20000
        exec 3<>"/dev/tcp/127.0.0.1/$port" 4<>"/dev/tcp/127.0.0.1/$port"
        timeout 60 cat <&4 >"$scratch/heard" &
        local reader=$!
        for _ in $(seq 600); do
            grep -q '^1 clients do not read$' "$scratch/slow_consumer" && break
            sleep 0.05
        done
        grep -q '^1 clients do not read$' "$scratch/slow_consumer" \
            || die "slow_consumer does not find the client that does not read"
        stop slow_consumer "$pid"
        exec 3>&- 4>&-
        wait "$reader" || die "slow_consumer does not end its connections"
        grep -q missed "$scratch/heard" && die "slow_consumer leaves a gap for a client that reads"
        sed -n 's/^message \([0-9]*\)[.].*$/\1/p' "$scratch/heard" >"$scratch/numbers"
        [ "$(wc -l <"$scratch/numbers")" -gt 100 ] \
            || die "slow_consumer sends only $(wc -l <"$scratch/numbers") messages"
        seq "$(head -n 1 "$scratch/numbers")" "$(tail -n 1 "$scratch/numbers")" \
            | cmp - "$scratch/numbers" || die "slow_consumer loses a message"
    done

    # Its own servers break each connection after 20 answers.
    limit 60 "$target/debug/examples/dial_pool" --size 3 --requests 500 | tee "$scratch/dial_pool"
    grep -qE '^1000 answered, 0 failed; .* [1-9][0-9]* broken' "$scratch/dial_pool" \
        || die "dial_pool does not replace its connections"
    start nbio_echo
    limit 60 "$target/debug/examples/dial_pool" --addr "127.0.0.1:$port" --size 4 \
        | tee "$scratch/dial_pool"
    grep -qx '200 answered, 0 failed; [1-4] connections, 0 broken' "$scratch/dial_pool" \
        || die "dial_pool does not use its connections again"
    stop nbio_echo "$pid"
    timeout 60 "$target/debug/examples/dial_pool" --addr "127.0.0.1:$port" >"$scratch/dial_pool" \
        && die "dial_pool finds a server that is gone"
    grep -qx '0 answered, 200 failed; 0 connections, 0 broken' "$scratch/dial_pool" \
        || die "dial_pool does not count requests that fail"

    start mixed_modes
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    heard=
    for command in "sum 10" where subscribe where; do
        echo "$command" >&3
        read -r -t 10 line <&3 || die "mixed_modes does not answer '$command'"
        heard+="$line;"
    done
    exec 3>&-
    [ "$heard" = "55;connection 0;subscribed;loop 0;" ] || die "mixed_modes answers '$heard'"
    stop mixed_modes "$pid"

    # Two loops take turns: the clients are on different ones.
    start serve_chat --loops 2
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    read -r -t 10 line <&3 || die "serve_chat does not greet"
    [[ $line == "you are "* ]] || die "serve_chat greets with '$line'"
    exec 4<>"/dev/tcp/127.0.0.1/$port"
    read -r -t 10 line <&3 && [[ $line == *" is here" ]] || die "serve_chat announces no client"
    echo "good day" >&4
    read -r -t 10 line <&3 && [[ $line == *": good day" ]] || die "serve_chat says '$line'"
    exec 3>&- 4>&-
    stop serve_chat "$pid"

    if ! command -v curl >/dev/null; then
        skip "the examples of windlass-web: curl is not installed"
    else
        web_examples
        files_example
    fi
}

# Asks $1 with curl's options after it, and expects a body with $2 in it.
expect_answer() {
    local url=$1 what=$2
    shift 2
    curl -sS --max-time 20 --insecure "$@" "$url" >"$scratch/fetched" || die "$url: no answer"
    grep -qF -- "$what" "$scratch/fetched" \
        || { cat "$scratch/fetched"; die "$url is answered without '$what'"; }
}

# Fetches $1 and expects the status $2.
expect_status() {
    fetch "$1"
    [ "$status" = "$2" ] || die "files: $1 is answered with $status, not $2"
}

# Clients of the example `files`, whose directory is $scratch/tree. $direct is empty where the file
# system has no direct reads.
files_example() {
    local how i fetching=()
    for how in "" "--files pool $direct" "--threads 2 $direct"; do
        # shellcheck disable=SC2086
        start files $how "$scratch/tree"
        expect_status large 200
        cmp "$scratch/fetched" "$scratch/tree/large"
        expect_status "sub/a%20b?query" 200
        cmp "$scratch/fetched" "$scratch/tree/sub/a b"
        expect_status sub 308
        for path in nothing "..%2fsecret" ../secret out sub/; do
            expect_status "$path" 404
        done
        fetch large --range 4097-200000
        [ "$status" = 206 ] || die "files: a range is answered with $status"
        head -c 200001 "$scratch/tree/large" | tail -c 195904 | cmp - "$scratch/fetched"
        for i in $(seq 20); do
            curl -sS --max-time 60 -o "$scratch/fetched$i" "http://127.0.0.1:$port/large" &
            fetching[i]=$!
        done
        for i in $(seq 20); do
            wait "${fetching[i]}" || die "files: fetch $i of 20 fails"
            cmp "$scratch/fetched$i" "$scratch/tree/large"
        done
        stop files "$pid"
    done
}

# A client of each example of windlass-web.
web_examples() {
    local scheme
    for scheme in http https; do
        # shellcheck disable=SC2046
        start hello --loops 2 $([ "$scheme" = http ] || echo --tls)
        expect_answer "$scheme://127.0.0.1:$port/" "Hello, World!"
        expect_answer "$scheme://127.0.0.1:$port/echo" "said again" --data-binary "said again"
        stop hello "$pid"
    done

    start json_api
    expect_answer "http://127.0.0.1:$port/notes" 1 --json '{"text":"four"}' -H "Authorization: me"
    expect_answer "http://127.0.0.1:$port/notes/1" '{"text":"four"}'
    expect_answer "http://127.0.0.1:$port/report" '[1,4]'
    stop json_api "$pid"

    mkdir "$scratch/uploads"
    start upload --loops 2 "$scratch/uploads"
    head -c 3000000 /dev/urandom >"$scratch/one"
    [ "$(curl -sS --max-time 20 -T "$scratch/one" "http://127.0.0.1:$port/files/put")" = \
        "put: 3000000 bytes" ] || die "upload does not take a file"
    cmp "$scratch/one" "$scratch/uploads/put"
    curl -sS --max-time 20 -F note=text -F "file=@$scratch/one" \
        -F "file=@$scratch/one;filename=two.bin" "http://127.0.0.1:$port/form" \
        >"$scratch/heard"
    expect_answer "http://127.0.0.1:$port/form" "not allowed" -F "file=@$scratch/one;filename=../x"
    printf 'note\none: 3000000 bytes\ntwo.bin: 3000000 bytes\n' | cmp - "$scratch/heard" ||
        die "upload does not take a form"
    cmp "$scratch/one" "$scratch/uploads/one"
    stop upload "$pid"
    [ -z "$(find "$scratch/uploads" -name '.upload-*')" ] || die "upload leaves parts behind"

    start hooks
    expect_answer "http://127.0.0.1:$port/notes/7" "note 7"
    stop hooks "$pid"
    grep -qF '"GET /notes/7 HTTP/1.1" 200' "$scratch/hooks" || die "hooks has no access log"

    start own_loop
    expect_answer "http://127.0.0.1:$port/file" "[workspace]"
    expect_answer "http://127.0.0.1:$port/tick" "tick "
    stop own_loop "$pid"

    start hello
    "$target/debug/examples/client" "http://127.0.0.1:$port/plaintext" >"$scratch/client"
    [ "$(head -n 1 "$scratch/client")" = "200 OK" ] || die "client has no response"
    [ "$(tail -n 1 "$scratch/client")" = "Hello, World!" ] || die "client has another response"
    echo "some text" >"$scratch/post"
    "$target/debug/examples/client" --post "$scratch/post" "http://127.0.0.1:$port/echo" |
        grep -qx "some text" || die "client has not sent a file"
    "$target/debug/examples/client" --count 100 --connections 4 "http://127.0.0.1:$port/" |
        grep -q "^100 of 100 requests" || die "client is no load"
    stop hello "$pid"

    # The port of TLS is the first one, and the shutdown ends a response that tells events.
    start https --plain-port 0
    expect_answer "https://127.0.0.1:${port%%$'\n'*}/" "Hello, World!"
    stop https "$pid"

    start events
    timeout 60 curl -sSN "http://127.0.0.1:$port/prices" >"$scratch/heard" &
    local hears=$!
    for _ in $(seq 600); do
        [ "$(grep -c '^event: price' "$scratch/heard")" -ge 2 ] && break
        sleep 0.05
    done
    [ "$(grep -c '^event: price' "$scratch/heard")" -ge 2 ] || die "events tells no prices"
    stop events "$pid"
    wait "$hears" || die "events does not end its responses"

    start websocket_echo --loops 2
    expect_message / "said again" "said again"
    stop websocket_echo "$pid"

    start ws_chat --loops 2
    expect_answer "http://127.0.0.1:$port/" "new WebSocket"
    expect_message "/rooms/hall?name=ann" "good day" "ann: good day"
    stop ws_chat "$pid"

    start ws_broadcast --loops 2 --interval 20 --lossy
    expect_message / "" "message "
    expect_answer "http://127.0.0.1:$port/counts" "missed "
    stop ws_broadcast "$pid"

    start ticker --loops 2 --shares 3 --interval 20
    expect_message / "+S2" "S2 "
    stop ticker "$pid"

    mkdir "$scratch/mixed"
    start ws_mixed --loops 2 --dir "$scratch/mixed"
    expect_message /follow "a line" "a line"
    expect_answer "http://127.0.0.1:$port/lines" "2 lines" --data "another one"
    expect_answer "http://127.0.0.1:$port/files/lines.txt" "another one"
    stop ws_mixed "$pid"

    start ws_own_loop --file "$scratch/own-lines.txt"
    expect_message /follow "a line" "a line"
    expect_answer "http://127.0.0.1:$port/" "7 bytes"
    stop ws_own_loop "$pid"
}

# Opens a WebSocket at $1, says the text $2, of at most 125 bytes, and expects to hear $3.
expect_message() {
    local heard="" byte length
    length=$(printf %02x $((128 + ${#2})))
    exec 5<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nUpgrade: websocket\r\n' "$1" "$port" >&5
    printf 'Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n' >&5
    printf 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n' >&5
    # A mask of zeros changes nothing.
    printf "\\x81\\x$length\\0\\0\\0\\0%s" "$2" >&5
    while [[ $heard != *"$3"* ]]; do
        LC_ALL=C IFS= read -r -t 20 -n 1 -d '' byte <&5 || die "$1: heard '$heard', not '$3'"
        heard+=$byte
    done
    exec 5>&-
}

# Real clients of the example serve_redis: its replies, and its log: locked, torn, damaged.
serve_redis() {
    local log=$scratch/redis.aof python=$scratch/python/bin/python
    start serve_redis --loops 2 --appendonly yes --appendfilename "$log"
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'SET key one\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nQUIT\r\n' >&3
    timeout 10 cat <&3 >"$scratch/heard" || true
    exec 3>&-
    printf '+OK\r\n$3\r\none\r\n+OK\r\n' | cmp - "$scratch/heard" \
        || die "serve_redis: other replies"

    if ! command -v redis-cli >/dev/null && ! packages redis-tools; then
        skip "serve_redis: redis-tools (redis-cli, redis-benchmark) could not be installed"
    else
        [ "$(redis-cli -p "$port" get key)" = one ] || die "redis-cli gets another value"
        redis-cli -p "$port" wake | grep -qx OK || die "redis-cli cannot wake"
        limit 120 redis-benchmark -p "$port" -P 16 -c 20 -n 20000 -t ping,set,get --csv
    fi
    if ! { python3 -m venv "$scratch/python" && timeout 120 "$scratch/python/bin/pip" install -q \
        --disable-pip-version-check redis; } >/dev/null 2>&1; then
        skip "serve_redis: the Python client library redis could not be installed"
    else
        limit 120 "$python" .ci/redis_client.py "$port"
    fi

    # A second server does not get the log, and says which one.
    local refused=$scratch/refused
    if timeout 20 "$target/debug/examples/serve_redis" --port 0 --appendonly yes \
        --appendfilename "$log" </dev/null >"$refused" 2>&1; then
        die "two servers have one log"
    fi
    grep -q "$log: another server has this log" "$refused" \
        || { cat "$refused"; die "serve_redis does not say that a server has its log"; }

    # A SET of "two" that is acknowledged, and then a crash within the next one.
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'SET key two\r\n' >&3
    timeout 10 head -c 5 <&3 >/dev/null
    printf 'SET key three\r\nSHUTDOWN\r\n' >&3
    timeout 10 cat <&3 >/dev/null || true
    exec 3>&-
    wait "$pid" || die "serve_redis ends with $? after SHUTDOWN"
    if command -v redis-check-aof >/dev/null; then
        redis-check-aof "$log" | grep -q 'is valid' || die "redis-check-aof finds faults in a log"
    fi
    cp "$log" "$scratch/damaged.aof"
    truncate -s -3 "$log"
    start serve_redis --appendonly yes --appendfilename "$log"
    grep -q "cut off 82 bytes of a torn group at byte [0-9]*: see $log.cut" "$scratch/serve_redis" \
        || { cat "$scratch/serve_redis"; die "serve_redis does not tell of a torn group"; }
    [ "$(stat -c %s "$log.cut")" = 82 ] || die "serve_redis does not keep a torn group"
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET key\r\nQUIT\r\n' >&3
    timeout 10 cat <&3 >"$scratch/heard" || true
    exec 3>&-
    printf '$3\r\ntwo\r\n+OK\r\n' | cmp - "$scratch/heard" || die "serve_redis lost a write"
    stop serve_redis "$pid"
    # A length in the middle is damaged: the server does not start, and changes nothing.
    log=$scratch/damaged.aof
    sed -i '0,/^\$3/s//$9/' "$log"
    cp "$log" "$scratch/damaged"
    if timeout 20 "$target/debug/examples/serve_redis" --port 0 --appendonly yes \
        --appendfilename "$log" </dev/null >"$refused" 2>&1; then
        die "serve_redis starts with a damaged log"
    fi
    grep -q "byte [0-9]* of the log: its group is damaged" "$refused" \
        || { cat "$refused"; die "serve_redis does not say where its log is damaged"; }
    cmp "$log" "$scratch/damaged"
}
