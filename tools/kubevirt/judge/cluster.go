package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"

	k8sv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/kubevirt/pkg/testutils"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

const kubeVirtNamespace = "kubevirt"

// cluster stands in for the one that KubeVirt would run in.
type cluster struct {
	// configs are the configurations seen so far, by the text of the KubeVirt object.
	configs map[string]*virtconfig.ClusterConfig
	// held is what the cluster of the present question holds, objects the same by path, and client reads them.
	held    []byte
	objects objects
	client  kubecli.KubevirtClient
	presets cache.SharedIndexInformer
	pods    pods
}

func newCluster() (*cluster, error) {
	held := objects{}
	client, err := kubecli.GetKubevirtClientFromRESTConfig(&rest.Config{Host: "http://objects", Transport: held, QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	presets, _ := testutils.NewFakeInformerFor(&v1.VirtualMachineInstancePreset{})
	return &cluster{
		configs: map[string]*virtconfig.ClusterConfig{},
		objects: held,
		client:  client,
		presets: presets,
		pods:    newPods(),
	}, nil
}

// config is what KubeVirt reads out of a KubeVirt object.
func (c *cluster) config(text json.RawMessage) (*virtconfig.ClusterConfig, error) {
	if config, known := c.configs[string(text)]; known {
		return config, nil
	}
	kubeVirt := &v1.KubeVirt{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, kubeVirt); err != nil {
			return nil, fmt.Errorf("not a KubeVirt object: %w", err)
		}
	}
	if kubeVirt.Status.DefaultArchitecture == "" {
		kubeVirt.Status.DefaultArchitecture = runtime.GOARCH // as virt-operator reports it
	}
	kubeVirt.Name, kubeVirt.Namespace = "kubevirt", kubeVirtNamespace
	config, _, _ := testutils.NewFakeClusterConfigUsingKV(kubeVirt)
	c.configs[string(text)] = config
	return config, nil
}

// readInto makes what the objects that KubeVirt finds in informers are read into, by kind.
var readInto = map[string]func() any{
	"VirtualMachineInstancePreset": func() any { return &v1.VirtualMachineInstancePreset{} },
	"PersistentVolumeClaim":        func() any { return &k8sv1.PersistentVolumeClaim{} },
	"ResourceQuota":                func() any { return &k8sv1.ResourceQuota{} },
	"Namespace":                    func() any { return &k8sv1.Namespace{} },
}

// hold lets the cluster hold these objects and no others. Many questions in a row are about the same cluster.
func (c *cluster) hold(list json.RawMessage) error {
	if bytes.Equal(c.held, list) {
		return nil
	}
	var texts []json.RawMessage
	if len(list) > 0 {
		if err := json.Unmarshal(list, &texts); err != nil {
			return fmt.Errorf("not a list of objects: %w", err)
		}
	}
	c.held = nil
	clear(c.objects)
	var presets, others []any
	for _, text := range texts {
		object := metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(text, &object); err != nil {
			return fmt.Errorf("not an object of the cluster: %w", err)
		}
		c.objects[pathOf(&object)] = text
		read, known := readInto[object.Kind]
		if !known {
			continue
		}
		typed := read()
		if err := json.Unmarshal(text, typed); err != nil {
			return fmt.Errorf("not a %s: %w", object.Kind, err)
		}
		if preset, is := typed.(*v1.VirtualMachineInstancePreset); is {
			presets = append(presets, preset)
		} else {
			others = append(others, typed)
		}
	}
	if err := c.presets.GetStore().Replace(presets, ""); err != nil {
		return fmt.Errorf("cannot keep the presets: %w", err)
	}
	if err := c.pods.hold(others); err != nil {
		return err
	}
	c.held = bytes.Clone(list)
	return nil
}

// objects answers an API server's requests for single objects from a map by path. Nothing leaves the process.
type objects map[string]json.RawMessage

// irregular are the names of resources that are not the kind's with an s, among the kinds that KubeVirt looks up.
var irregular = map[string]string{"NetworkAttachmentDefinition": "network-attachment-definitions"}

// pathOf is where an API server would serve the object.
func pathOf(object *metav1.PartialObjectMetadata) string {
	root := "/apis/"
	if !strings.Contains(object.APIVersion, "/") {
		root = "/api/"
	}
	namespace := ""
	if object.Namespace != "" {
		namespace = "/namespaces/" + object.Namespace
	}
	resource, known := irregular[object.Kind]
	if !known {
		resource = strings.ToLower(object.Kind) + "s"
	}
	return root + object.APIVersion + namespace + "/" + resource + "/" + url.PathEscape(object.Name)
}

func (o objects) RoundTrip(request *http.Request) (*http.Response, error) {
	code, body := http.StatusOK, []byte(o[request.URL.EscapedPath()])
	if len(body) == 0 || request.Method != http.MethodGet {
		code = http.StatusNotFound
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Reason:   metav1.StatusReasonNotFound,
			Code:     int32(code),
			Message:  request.Method + " " + request.URL.Path + ": not found",
		}
		text, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		body = text
	}
	return &http.Response{
		StatusCode: code,
		Status:     http.StatusText(code),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": []string{"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    request,
	}, nil
}
