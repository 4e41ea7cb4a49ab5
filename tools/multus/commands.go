//go:build commands

// Package multus names the command that is built as it is, so that `go mod tidy` keeps what it needs.
package multus

import (
	_ "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"
)
