// An echo server on gnet with one event loop.
package main

import (
	"log"
	"os"

	"github.com/panjf2000/gnet/v2"
)

type echo struct{ gnet.BuiltinEventEngine }

func (*echo) OnTraffic(conn gnet.Conn) gnet.Action {
	data, err := conn.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := conn.Write(data); err != nil {
		return gnet.Close
	}
	return gnet.None
}

func main() {
	log.Fatal(gnet.Run(&echo{}, "tcp://127.0.0.1:"+os.Args[1],
		gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPNoDelay)))
}
