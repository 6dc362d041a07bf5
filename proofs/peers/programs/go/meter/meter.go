// Package meter has what the Go programs share: the configuration, and the lines that a program prints.
package meter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config is the configuration, whose file is the program's argument.
type Config struct {
	Endpoint          string  `json:"endpoint"`
	Region            string  `json:"region"`
	Stream            string  `json:"stream"`
	Consumer          string  `json:"consumer"`
	ConsumerARN       string  `json:"consumer_arn"`
	Application       string  `json:"application"`
	Worker            string  `json:"worker"`
	DynamoDB          string  `json:"dynamodb"`
	Report            string  `json:"report"`
	Expected          int64   `json:"expected"`
	Aggregated        bool    `json:"aggregated"`
	CheckpointSeconds float64 `json:"checkpoint_seconds"`
}

// Meter counts what a handler received, and prints lines of JSON.
type Meter struct {
	Detailed  bool
	config    Config
	mutex     sync.Mutex
	records   int64
	bytes     int64
	latencies []string
}

// Start reads the configuration, and begins to print the counts each second.
func Start() (Config, *Meter) {
	text, err := os.ReadFile(os.Args[1])
	Must(err)
	var config Config
	Must(json.Unmarshal(text, &config))
	m := &Meter{config: config, Detailed: config.Report != "counts"}
	go func() {
		for range time.Tick(time.Second) {
			m.printCounts()
		}
	}()
	return config, m
}

// Add counts a batch. Until the expected records are here, each batch prints a line.
func (m *Meter) Add(records, size int) {
	m.mutex.Lock()
	early := m.records < m.config.Expected
	m.records += int64(records)
	m.bytes += int64(size)
	m.mutex.Unlock()
	if early && records > 0 {
		m.printCounts()
	}
}

// Details reports keys and data of a batch as the figure needs them: latencies, or each record's key and number.
func (m *Meter) Details(keys []string, data [][]byte) {
	now := time.Now().UnixNano()
	var seen []string
	for i, one := range data {
		fields := bytes.SplitN(one, []byte(" "), 3)
		if m.config.Report == "numbers" {
			seen = append(seen, keys[i]+":"+string(fields[0]))
			continue
		}
		put, err := strconv.ParseInt(string(fields[1]), 10, 64)
		Must(err)
		m.mutex.Lock()
		m.latencies = append(m.latencies, strconv.FormatInt((now-put)/1000, 10))
		m.mutex.Unlock()
	}
	if len(seen) > 0 {
		print(map[string]any{"seen": strings.Join(seen, " ")})
	}
}

// UntilTerminated waits for SIGTERM, calls stop, and prints that the program stopped.
func (m *Meter) UntilTerminated(stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	stop()
	m.printCounts()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	print(map[string]any{"stopped": seconds(), "records": m.records})
}

func (m *Meter) printCounts() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	print(map[string]any{
		"t": seconds(), "records": m.records, "bytes": m.bytes, "source": "", "latencies": strings.Join(m.latencies, " "),
	})
	m.latencies = nil
}

var output sync.Mutex

func print(line map[string]any) {
	text, err := json.Marshal(line)
	Must(err)
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s\n", text)
}

func seconds() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// Must ends the program on an error.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
