// Package lines drives a client library by lines on standard input, and prints one line as the answer to each.
//
// docs/matrix.md describes the commands. The answer is "ok", "error NAME MESSAGE" or "unsupported MESSAGE".
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrUnsupported is the error of a command for which a library has no call.
var ErrUnsupported = errors.New("unsupported")

// Serve carries out the commands of standard input until it is closed.
func Serve(carryOut func(words []string) error) {
	commands := bufio.NewReader(os.Stdin)
	fmt.Println("ok")
	for {
		line, err := commands.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Println(answer(carryOut(strings.Fields(line))))
	}
}

func answer(err error) string {
	if err == nil {
		return "ok"
	}
	message := strings.ReplaceAll(err.Error(), "\n", " ")
	if errors.Is(err, ErrUnsupported) {
		return "unsupported " + message
	}
	return "error " + name(message) + " " + message
}

// name returns Kafka's name of an error if the message begins with one, and "error" otherwise.
func name(message string) string {
	first, _, _ := strings.Cut(message, ":")
	if first != "" && first == strings.ToUpper(first) && !strings.Contains(first, " ") {
		return first
	}
	return "error"
}
