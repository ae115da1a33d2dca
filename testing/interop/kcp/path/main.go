// Command path is one kcp-go end for measurements on impaired paths; testing/kcp-path starts it and reads what it prints.
//
//	path receive ADDR D P WARM SECONDS   takes a stream; prints "ready", "start", "end BYTES NANOSECONDS"
//	path send ADDR D P SECONDS           sends for that long; prints "sent RETRANSMITTED SEGMENTS"
//	path listen ADDR D P COUNT           takes messages of 64 bytes; prints "ready", "latency P50 P99 MAX COUNT" (microseconds)
//	path talk ADDR D P COUNT             sends one each 20 ms
//
// Without encryption; kcptun's fast3 mode, windows of KCP_PATH_WINDOW segments.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/xtaci/kcp-go/v5"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(index int) int {
	n, err := strconv.Atoi(os.Args[index])
	check(err)
	return n
}

func tune(s *kcp.UDPSession) *kcp.UDPSession {
	s.SetStreamMode(true)
	s.SetNoDelay(1, 10, 2, 1)
	window, err := strconv.Atoi(os.Getenv("KCP_PATH_WINDOW"))
	check(err)
	s.SetWindowSize(window, window)
	s.SetMtu(1400)
	s.SetACKNoDelay(true)
	s.SetReadBuffer(4 << 20)
	s.SetWriteBuffer(4 << 20)
	return s
}

func accept() *kcp.UDPSession {
	listener, err := kcp.ListenWithOptions(os.Args[2], nil, number(3), number(4))
	check(err)
	listener.SetReadBuffer(4 << 20)
	listener.SetWriteBuffer(4 << 20)
	fmt.Println("ready")
	session, err := listener.AcceptKCP()
	check(err)
	return tune(session)
}

func dial() *kcp.UDPSession {
	session, err := kcp.DialWithOptions(os.Args[2], nil, number(3), number(4))
	check(err)
	return tune(session)
}

func receive() {
	session := accept()
	warm := time.Duration(number(5)) * time.Second
	length := time.Duration(number(6)) * time.Second
	buffer := make([]byte, 1<<16)
	var first, start time.Time
	total := 0
	for {
		n, err := session.Read(buffer)
		check(err)
		now := time.Now()
		switch {
		case first.IsZero():
			first = now
		case start.IsZero() && now.Sub(first) >= warm:
			start = now
			fmt.Println("start")
		case !start.IsZero():
			total += n
			if now.Sub(start) >= length {
				fmt.Println("end", total, now.Sub(start).Nanoseconds())
				time.Sleep(time.Minute)
			}
		}
	}
}

func send() {
	session := dial()
	end := time.Now().Add(time.Duration(number(5)) * time.Second)
	buffer := make([]byte, 1<<14)
	session.SetWriteDeadline(end)
	for time.Now().Before(end) {
		if _, err := session.Write(buffer); err != nil {
			break
		}
	}
	counters := kcp.DefaultSnmp.Copy()
	fmt.Println("sent", counters.RetransSegs, counters.OutSegs)
}

func listen() {
	session := accept()
	count := number(5)
	message := make([]byte, 64)
	var late []int64
	for range count {
		_, err := io.ReadFull(session, message)
		check(err)
		sent := int64(binary.LittleEndian.Uint64(message))
		late = append(late, (time.Now().UnixNano()-sent)/1000)
	}
	slices.Sort(late)
	fmt.Println("latency", late[count/2], late[count*99/100], late[count-1], count)
	time.Sleep(time.Minute)
}

func talk() {
	session := dial()
	message := make([]byte, 64)
	for range time.Tick(20 * time.Millisecond) {
		binary.LittleEndian.PutUint64(message, uint64(time.Now().UnixNano()))
		_, err := session.Write(message)
		check(err)
	}
}

func main() {
	switch os.Args[1] {
	case "receive":
		receive()
	case "send":
		send()
	case "listen":
		listen()
	case "talk":
		talk()
	}
}
