// An HTTP client: netclient PORT CONNECTIONS. It has one request answered on each connection, and
// prints "served". For each number that it reads it has so many requests answered, and prints the
// seconds that this took.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	url := "http://127.0.0.1:" + os.Args[1] + "/plaintext"
	connections, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
	}}
	requests := func(count int) {
		var threads sync.WaitGroup
		for index := 0; index < connections; index++ {
			share := (count + index) / connections
			threads.Add(1)
			go func() {
				defer threads.Done()
				for ; share > 0; share-- {
					response, err := client.Get(url)
					if err != nil {
						log.Fatal(err)
					}
					body, err := io.ReadAll(response.Body)
					response.Body.Close()
					if err != nil || response.StatusCode != 200 || len(body) != 13 {
						log.Fatal("another response: ", response.Status, err)
					}
				}
			}()
		}
		threads.Wait()
	}
	requests(connections)
	fmt.Println("served")
	for {
		var count int
		if _, err := fmt.Scanln(&count); err != nil {
			return
		}
		begin := time.Now()
		requests(count)
		fmt.Println(time.Since(begin).Seconds())
	}
}
