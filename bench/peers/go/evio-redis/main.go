// A store of keys and values on evio with one event loop, and redcon's parser: PING, SET and GET.
package main

import (
	"log"
	"os"
	"strings"

	"github.com/tidwall/evio"
	"github.com/tidwall/redcon"
)

var store = map[string]string{}

func reply(out []byte, words [][]byte) []byte {
	switch strings.ToLower(string(words[0])) {
	case "ping":
		return redcon.AppendString(out, "PONG")
	case "set":
		if len(words) == 3 {
			store[string(words[1])] = string(words[2])
			return redcon.AppendOK(out)
		}
	case "get":
		if len(words) == 2 {
			if value, ok := store[string(words[1])]; ok {
				return redcon.AppendBulkString(out, value)
			}
			return redcon.AppendNull(out)
		}
	}
	return redcon.AppendError(out, "ERR unknown command, or a wrong number of arguments")
}

func main() {
	events := evio.Events{NumLoops: 1}
	events.Opened = func(conn evio.Conn) ([]byte, evio.Options, evio.Action) {
		conn.SetContext(&evio.InputStream{})
		return nil, evio.Options{}, evio.None
	}
	events.Data = func(conn evio.Conn, in []byte) (out []byte, action evio.Action) {
		input := conn.Context().(*evio.InputStream)
		data := input.Begin(in)
		for len(data) > 0 {
			complete, words, _, rest, err := redcon.ReadNextCommand(data, nil)
			if err != nil {
				return redcon.AppendError(out, "ERR "+err.Error()), evio.Close
			}
			if !complete {
				break
			}
			data = rest
			if len(words) > 0 {
				out = reply(out, words)
			}
		}
		input.End(data)
		return out, evio.None
	}
	log.Fatal(evio.Serve(events, "tcp://127.0.0.1:"+os.Args[1]))
}
