//go:build commands

// Package peers names the commands that are built as they are, so that `go mod tidy` keeps what they need.
package peers

import (
	_ "kubevirt.io/kubevirt/cmd/virt-controller"
	_ "kubevirt.io/kubevirt/cmd/virtctl"
)
