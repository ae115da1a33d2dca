// Command frp-run runs frp's own server and client packages as frps and frpc would, without their web pages,
// so that the relay bench can compare with frp at a version pinned in go.mod.
//
// A configuration file (TOML, YAML or JSON, frp's own keys) goes through frp's loader and checks, then into
// server.NewService or client.NewService; the process serves until it is killed. Ports, certificates and
// lifetimes are left to the caller.
//
// frp's own builds replace hashicorp/yamux by a fork, which a dependency's replace directive does not hand on. The public
// checksum database has no entry for that fork, so this program links upstream yamux, whose checksum it can verify.
//
//	frp-run server CONFIG
//	frp-run client CONFIG
//	frp-run version
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fatedier/frp/client"
	"github.com/fatedier/frp/pkg/config"
	"github.com/fatedier/frp/pkg/config/source"
	"github.com/fatedier/frp/pkg/config/v1/validation"
	"github.com/fatedier/frp/pkg/policy/security"
	"github.com/fatedier/frp/pkg/util/log"
	"github.com/fatedier/frp/pkg/util/version"
	"github.com/fatedier/frp/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "frp-run:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		fmt.Println(version.Full())
		return nil
	case len(args) == 2 && args[0] == "server":
		return runServer(args[1])
	case len(args) == 2 && args[0] == "client":
		return runClient(args[1])
	}
	return fmt.Errorf("usage: frp-run server|client CONFIG, or frp-run version")
}

func runServer(path string) error {
	cfg, _, err := config.LoadServerConfig(path, true)
	if err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	if _, err := validation.NewConfigValidator(security.NewUnsafeFeatures(nil)).ValidateServerConfig(cfg); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	log.InitLogger(cfg.Log.To, cfg.Log.Level, int(cfg.Log.MaxDays), true)
	svc, err := server.NewService(cfg)
	if err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	svc.Run(context.Background())
	return nil
}

func runClient(path string) error {
	loaded, err := config.LoadClientConfigResult(path, true)
	if err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	fromFile := source.NewConfigSource()
	if err := fromFile.ReplaceAll(loaded.Proxies, loaded.Visitors); err != nil {
		return fmt.Errorf("take proxies of %s: %w", path, err)
	}
	unsafeFeatures := security.NewUnsafeFeatures(nil)
	proxies := config.CompleteProxyConfigurers(loaded.Proxies)
	visitors := config.CompleteVisitorConfigurers(loaded.Visitors)
	if _, err := validation.ValidateAllClientConfig(loaded.Common, proxies, visitors, unsafeFeatures); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	log.InitLogger(loaded.Common.Log.To, loaded.Common.Log.Level, int(loaded.Common.Log.MaxDays), true)
	svc, err := client.NewService(client.ServiceOptions{
		Common:                 loaded.Common,
		ConfigSourceAggregator: source.NewAggregator(fromFile),
		UnsafeFeatures:         unsafeFeatures,
		ConfigFilePath:         path,
	})
	if err != nil {
		return fmt.Errorf("start client: %w", err)
	}
	return svc.Run(context.Background())
}
