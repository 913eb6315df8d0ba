// Reads a dashboard as Grafana's own library for dashboards does, and prints in one line each what is wrong with it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	if err := check(os.Stdin); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func check(input io.Reader) error {
	text, err := io.ReadAll(input)
	if err != nil {
		return err
	}
	var strict, board dashboard.Dashboard
	if err := strict.UnmarshalJSONStrict(text); isWrong(err) {
		return err
	}
	// the strict reader leaves out panels with such an empty list of errors
	if err := json.Unmarshal(text, &board); err != nil {
		return err
	}
	for _, item := range board.Panels {
		if item.Panel == nil {
			continue
		}
		// of a panel that the library does not know it takes all options as they are
		if _, known := cog.ConfigForPanelcfgVariant(item.Panel.Type); !known {
			return fmt.Errorf("there is no panel of type %q", item.Panel.Type)
		}
	}
	if err := board.Validate(); isWrong(err) {
		return err
	}
	return nil
}

// isWrong is whether an error of the library says anything: it also returns lists of errors that are empty.
func isWrong(err error) bool {
	var list cog.BuildErrors
	return err != nil && (!errors.As(err, &list) || len(list) > 0)
}
