// A WebSocket server on nbio that echoes every message: non-blocking, with one poller, set up as in
// go-websocket-benchmark.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/lesismal/nbio/nbhttp"
	"github.com/lesismal/nbio/nbhttp/websocket"
)

func main() {
	upgrader := websocket.NewUpgrader()
	upgrader.KeepaliveTime = 0
	upgrader.CheckOrigin = func(*http.Request) bool { return true }
	upgrader.OnMessage(func(conn *websocket.Conn, kind websocket.MessageType, data []byte) {
		if err := conn.WriteMessage(kind, data); err != nil {
			conn.CloseWithError(err)
		}
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		conn.SetReadDeadline(time.Time{})
	})
	engine := nbhttp.NewEngine(nbhttp.Config{
		Network:                 "tcp",
		Addrs:                   []string{"127.0.0.1:" + os.Args[1]},
		Handler:                 handler,
		IOMod:                   nbhttp.IOModNonBlocking,
		ReleaseWebsocketPayload: true,
		NPoller:                 1,
		MaxLoad:                 1000000,
	})
	if err := engine.Start(); err != nil {
		log.Fatal(err)
	}
	select {}
}
