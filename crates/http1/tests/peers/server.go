// Says what net/http has read: method, target and body of each request, in a field of the answer.
package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		seen := fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, hex.EncodeToString(body))
		w.Header().Set("X-Seen", seen)
	}
	server := http.Server{
		Handler: http.HandlerFunc(answer),
		// Its answer to OPTIONS * does not say what it has read.
		DisableGeneralOptionsHandler: true,
	}
	panic(server.Serve(listener))
}
