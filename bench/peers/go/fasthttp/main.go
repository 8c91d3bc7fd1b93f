// An HTTP server that answers every request with a few bytes.
package main

import (
	"log"
	"os"

	"github.com/valyala/fasthttp"
)

func main() {
	answer := func(request *fasthttp.RequestCtx) {
		request.SetContentType("text/plain")
		request.SetBodyString("Hello, World!")
	}
	log.Fatal(fasthttp.ListenAndServe("127.0.0.1:"+os.Args[1], answer))
}
