// An echo server on gaio, with one buffer per connection. At SIGTERM it prints how many allocations
// it has made, and their bytes.
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/xtaci/gaio"
)

const bufferSize = 64 << 10

func main() {
	watcher, err := gaio.NewWatcher()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	go report()
	go serve(watcher)
	for {
		conn, err := listener.Accept()
		if err != nil {
			continue
		}
		if err := watcher.Read(nil, conn, make([]byte, bufferSize)); err != nil {
			log.Print(err)
		}
	}
}

func serve(watcher *gaio.Watcher) {
	for {
		results, err := watcher.WaitIO()
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range results {
			switch {
			case r.Error != nil || r.Operation == gaio.OpRead && r.Size == 0:
				watcher.Free(r.Conn)
			case r.Operation == gaio.OpRead:
				watcher.Write(nil, r.Conn, r.Buffer[:r.Size])
			default:
				watcher.Read(nil, r.Conn, r.Buffer[:cap(r.Buffer)])
			}
		}
	}
}

func report() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Println("allocations", stats.Mallocs, "bytes", stats.TotalAlloc)
	os.Exit(0)
}
