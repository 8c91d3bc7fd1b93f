module peers

go 1.24.0

require (
	github.com/lesismal/nbio v1.6.8
	github.com/panjf2000/gnet/v2 v2.7.2
	github.com/tidwall/evio v1.0.8
	github.com/tidwall/redcon v1.6.2
	github.com/xtaci/gaio v1.2.26
)

require (
	github.com/andybalholm/brotli v1.2.0 // indirect
	github.com/kavu/go_reuseport v1.5.0 // indirect
	github.com/klauspost/compress v1.18.2 // indirect
	github.com/lesismal/llib v1.2.2 // indirect
	github.com/panjf2000/ants/v2 v2.11.0 // indirect
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.69.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	golang.org/x/crypto v0.46.0 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)
