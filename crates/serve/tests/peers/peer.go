// The peer in Go, with its own TLS: see README.md.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func identity(directory, name string) []tls.Certificate {
	pair, err := tls.LoadX509KeyPair(directory+"/"+name+".pem", directory+"/"+name+".key")
	check(err)
	return []tls.Certificate{pair}
}

func settings(directory, version string) *tls.Config {
	pem, err := os.ReadFile(directory + "/root.pem")
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	number := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}[version]
	return &tls.Config{
		RootCAs: roots, ClientCAs: roots, ServerName: "localhost",
		MinVersion: number, MaxVersion: number, NextProtos: []string{"h2", "http/1.1"},
	}
}

func describe(state tls.ConnectionState) string {
	version := map[uint16]string{tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3"}
	resumed := "new"
	if state.DidResume {
		resumed = "resumed"
	}
	return fmt.Sprintf("%s %s %s", version[state.Version], state.NegotiatedProtocol, resumed)
}

func talk(config *tls.Config, port string, data []byte, piece int) error {
	conn, err := tls.Dial("tcp", "127.0.0.1:"+port, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	go func() {
		for at := 0; at < len(data); at += piece {
			if _, err := conn.Write(data[at:min(at+piece, len(data))]); err != nil {
				sent <- err
				return
			}
		}
		sent <- conn.CloseWrite()
	}()
	heard, err := io.ReadAll(conn) // it fails if there is no close_notify
	if err == nil {
		err = <-sent
	}
	if err == nil && !bytes.Equal(heard, data) {
		err = fmt.Errorf("other bytes: %d of %d", len(heard), len(data))
	}
	if err == nil {
		fmt.Println(describe(conn.ConnectionState()))
	}
	return err
}

// Keeps the first session for all: Go uses a ticket of TLS 1.3 only once.
type first struct {
	sync.Mutex
	state *tls.ClientSessionState
}

func (f *first) Get(string) (*tls.ClientSessionState, bool) {
	f.Lock()
	defer f.Unlock()
	return f.state, f.state != nil
}

func (f *first) Put(_ string, state *tls.ClientSessionState) {
	f.Lock()
	defer f.Unlock()
	if f.state == nil {
		f.state = state
	}
}

func client(port, directory, version string, size, piece, count int) {
	config := settings(directory, version)
	config.ClientSessionCache = &first{}
	if exists(directory + "/client.pem") {
		config.Certificates = identity(directory, "client")
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i % 251)
	}
	check(talk(config, port, data, piece))
	failures := make(chan error)
	for i := 1; i < count; i++ {
		go func() { failures <- talk(config, port, data, piece) }()
	}
	for i := 1; i < count; i++ {
		check(<-failures)
	}
}

func serve(conn *tls.Conn) {
	err := conn.Handshake()
	if err == nil {
		_, err = io.Copy(conn, conn)
	}
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	state := conn.ConnectionState()
	name, client := "-", "-"
	if state.ServerName != "" {
		name = state.ServerName
	}
	if len(state.PeerCertificates) > 0 {
		client = state.PeerCertificates[0].Subject.CommonName
	}
	fmt.Println(describe(state), name, client)
}

func server(directory, version string) {
	config := settings(directory, version)
	config.Certificates = identity(directory, "server")
	if exists(directory + "/client.pem") {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	check(err)
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			conn, err := listener.Accept()
			check(err)
			go serve(conn.(*tls.Conn))
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func main() {
	if a := os.Args; a[1] == "client" {
		client(a[2], a[3], a[4], number(a[5]), number(a[6]), number(a[7]))
	} else {
		server(a[2], a[3])
	}
}
