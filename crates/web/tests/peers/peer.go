// A client with net/http: what it hears is checked here. Arguments: the port.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	base := "http://127.0.0.1:" + os.Args[1]
	client := &http.Client{Timeout: 20 * time.Second}
	ask := func(method, path string, body io.Reader, status int, expected string) {
		request, err := http.NewRequest(method, base+path, body)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			log.Fatal(method, path, err)
		}
		heard, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != status || string(heard) != expected {
			log.Fatal(method, path, answer.StatusCode, err, len(heard))
		}
	}
	var all sync.WaitGroup
	for n := 0; n < 8; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for turn := 0; turn < 10; turn++ {
				ask("GET", "/", nil, 200, "Hello")
				ask("HEAD", "/", nil, 200, "")
				zeroes := make([]byte, 50000)
				ask("POST", "/echo", bytes.NewReader(zeroes), 200, string(zeroes))
				// A reader without a length is sent in chunks.
				ask("POST", "/echo", io.MultiReader(strings.NewReader("a"), strings.NewReader("b")), 200, "ab")
				ask("GET", "/stream", nil, 200, strings.Repeat("y", 1000000))
				ask("GET", "/job", nil, 200, "done")
				ask("GET", "/missing", nil, 404, "Not Found")
			}
		}()
	}
	all.Wait()
	fmt.Println("ok")
}
