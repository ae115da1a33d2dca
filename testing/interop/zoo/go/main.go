// The origin on Go's net/http; see ../README.md.
package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
)

const most = 400

func text(bytes []byte) string {
	if len(bytes) == 0 {
		return "-"
	}
	return hex.EncodeToString(bytes)
}

func main() {
	var lock sync.Mutex
	handle := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			// Cut off: no request.
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		lock.Lock()
		fmt.Printf("ZOO %s %s %d %s\n", text([]byte(r.Method)), text([]byte(r.RequestURI)), len(body), text(body[:min(len(body), most)]))
		lock.Unlock()
		w.Header().Set("Content-Length", "3")
		_, _ = io.WriteString(w, "ok\n")
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(handle)))
}
