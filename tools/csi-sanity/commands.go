//go:build commands

// Package sanity names the command that is built as it is, so that `go mod tidy` keeps what it needs.
package sanity

import (
	_ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
)
