//! Tests of virt-operator before a real kube-apiserver, with real controllers of Kubernetes and nodes that only pretend:
//! roll-outs are those of Deployments and DaemonSets, under the rights that an installation grants.
