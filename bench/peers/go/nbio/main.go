// An echo server on nbio with one poller, edge-triggered.
package main

import (
	"log"
	"os"

	"github.com/lesismal/nbio"
)

func main() {
	engine := nbio.NewEngine(nbio.Config{
		Network:  "tcp",
		Addrs:    []string{"127.0.0.1:" + os.Args[1]},
		NPoller:  1,
		EpollMod: nbio.EPOLLET,
	})
	engine.OnData(func(conn *nbio.Conn, data []byte) {
		if _, err := conn.Write(data); err != nil {
			conn.CloseWithError(err)
		}
	})
	if err := engine.Start(); err != nil {
		log.Fatal(err)
	}
	select {}
}
