// WebSocket clients with github.com/coder/websocket and github.com/gorilla/websocket: what they
// hear is checked here.
//
// Arguments: the URL of the server, what it does with permessage-deflate (off, fresh, takeover),
// and whom to trust, where the URL is wss.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
)

var (
	url, policy = os.Args[1], os.Args[2]
	trust       *tls.Config
	sizes       = []int{0, 1, 125, 126, 65535, 65536, 1 << 20}
)

func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func expect(holds bool, what ...any) {
	if !holds {
		log.Output(2, fmt.Sprintln(what...))
		os.Exit(1)
	}
}

// So many bytes of text, with characters of all lengths.
func letters(size int) []byte {
	whole := strings.Repeat("aé€😀 ", size/11)
	return []byte(whole + strings.Repeat(".", size-len(whole)))
}

func random(size int) []byte {
	data := make([]byte, size)
	rand.Read(data)
	return data
}

// A client of either package.
type client interface {
	write(text bool, message []byte)
	// Several frames.
	fragments(parts ...[]byte)
	read() (text bool, message []byte)
	ping()
	// Closes with 4000 and "good bye", and expects the code again, and the reason if the server likes.
	close()
}

func say(c client, text bool, message []byte) {
	c.write(text, message)
	isText, heard := c.read()
	expect(isText == text && bytes.Equal(heard, message), text, len(message), len(heard))
}

func speak(c client) {
	for _, size := range sizes {
		say(c, true, letters(size))
		say(c, false, make([]byte, size))
		say(c, false, random(size))
		whole := letters(size)
		c.fragments(whole[:size/3], whole[size/3:size/2], whole[size/2:])
		text, heard := c.read()
		expect(text && bytes.Equal(heard, whole), size, len(heard))
		c.ping()
	}
	for turn := 0; turn < 60; turn++ {
		say(c, true, fmt.Appendf(nil, `{"turn": %d, "text": "%s"}`, turn,
			strings.Repeat("the same text ", turn%9)))
		if turn%5 == 0 {
			say(c, false, random(turn*700))
		}
	}
	c.close()
}

// The extension is there as the server has it.
func accepted(response *http.Response, offered bool) {
	field := response.Header.Get("Sec-WebSocket-Extensions")
	expect((field != "") == (offered && policy != "off"), field)
	if offered && policy == "fresh" {
		expect(strings.Contains(field, "server_no_context_takeover"), field)
	}
}

type coders struct {
	*coder.Conn
	ctx context.Context
}

func (c coders) write(text bool, message []byte) {
	kind := coder.MessageBinary
	if text {
		kind = coder.MessageText
	}
	check(c.Conn.Write(c.ctx, kind, message))
}

func (c coders) fragments(parts ...[]byte) {
	writer, err := c.Conn.Writer(c.ctx, coder.MessageText)
	check(err)
	for _, part := range parts {
		_, err = writer.Write(part)
		check(err)
	}
	check(writer.Close())
}

func (c coders) read() (bool, []byte) {
	kind, message, err := c.Conn.Read(c.ctx)
	check(err)
	return kind == coder.MessageText, message
}

func (c coders) ping() {
	// The pong comes while it reads.
	done := make(chan error, 1)
	go func() { done <- c.Conn.Ping(c.ctx) }()
	say(c, true, []byte("beside a ping"))
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		text, heard := c.read()
		expect(text && string(heard) == "behind a ping", string(heard))
	}()
	check(<-done)
	c.write(true, []byte("behind a ping"))
	<-reading
}

func (c coders) close() {
	check(c.Conn.Close(4000, "good bye"))
}

func withCoder(mode coder.CompressionMode) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	dial := func(path string) (coders, *http.Response) {
		options := &coder.DialOptions{
			CompressionMode:      mode,
			CompressionThreshold: 1,
			HTTPClient:           &http.Client{Transport: &http.Transport{TLSClientConfig: trust}},
		}
		c, response, err := coder.Dial(ctx, url+path, options)
		check(err)
		c.SetReadLimit(4 << 20)
		return coders{c, ctx}, response
	}
	c, response := dial("/echo")
	accepted(response, mode != coder.CompressionDisabled)
	speak(c)

	// The server closes, and says why.
	c, _ = dial("/close")
	c.write(true, []byte("it is over"))
	_, _, err := c.Conn.Read(ctx)
	var end coder.CloseError
	expect(errors.As(err, &end) && end.Code == 4001 && end.Reason == "it is over", err)
}

type gorillas struct {
	*gorilla.Conn
	pongs *int
}

func (c gorillas) write(text bool, message []byte) {
	kind := gorilla.BinaryMessage
	if text {
		kind = gorilla.TextMessage
	}
	check(c.Conn.WriteMessage(kind, message))
}

func (c gorillas) fragments(parts ...[]byte) {
	writer, err := c.Conn.NextWriter(gorilla.TextMessage)
	check(err)
	for _, part := range parts {
		_, err = writer.Write(part)
		check(err)
	}
	check(writer.Close())
}

func (c gorillas) read() (bool, []byte) {
	c.Conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	kind, message, err := c.Conn.ReadMessage()
	check(err)
	return kind == gorilla.TextMessage, message
}

func (c gorillas) ping() {
	before := *c.pongs
	check(c.Conn.WriteControl(gorilla.PingMessage, []byte("a ping"), time.Now().Add(20*time.Second)))
	say(c, true, []byte("behind a ping"))
	expect(*c.pongs == before+1, "no pong")
}

func (c gorillas) close() {
	bye := gorilla.FormatCloseMessage(4000, "good bye")
	check(c.Conn.WriteControl(gorilla.CloseMessage, bye, time.Now().Add(20*time.Second)))
	c.Conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, _, err := c.Conn.ReadMessage()
	var end *gorilla.CloseError
	expect(errors.As(err, &end) && end.Code == 4000 && (end.Text == "" || end.Text == "good bye"), err)
	c.Conn.Close()
}

func withGorilla(compressed bool) {
	dialer := gorilla.Dialer{
		EnableCompression: compressed,
		HandshakeTimeout:  20 * time.Second,
		TLSClientConfig:   trust,
		// A message is sent in frames of this size.
		WriteBufferSize: 1000,
	}
	dial := func(path string) (gorillas, *http.Response) {
		c, response, err := dialer.Dial(url+path, nil)
		check(err)
		pongs := new(int)
		c.SetPongHandler(func(data string) error {
			expect(data == "a ping", data)
			*pongs++
			return nil
		})
		return gorillas{c, pongs}, response
	}
	c, response := dial("/echo")
	accepted(response, compressed)
	speak(c)

	c, _ = dial("/close")
	c.write(true, []byte("it is over"))
	_, _, err := c.Conn.ReadMessage()
	var end *gorilla.CloseError
	expect(errors.As(err, &end) && end.Code == 4001 && end.Text == "it is over", err)
	c.Conn.Close()
}

func main() {
	log.SetFlags(log.Lshortfile)
	if len(os.Args) > 3 {
		pem, err := os.ReadFile(os.Args[3])
		check(err)
		roots := x509.NewCertPool()
		expect(roots.AppendCertsFromPEM(pem), "no certificate in", os.Args[3])
		trust = &tls.Config{RootCAs: roots}
	}
	withCoder(coder.CompressionDisabled)
	withCoder(coder.CompressionNoContextTakeover)
	withCoder(coder.CompressionContextTakeover)
	withGorilla(false)
	withGorilla(true)
	fmt.Println("ok")
}
