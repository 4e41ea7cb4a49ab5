package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

type mutator interface {
	Mutate(*admissionv1.AdmissionReview) *admissionv1.AdmissionResponse
}

type admitter interface {
	Admit(context.Context, *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse
}

// judge runs the two webhooks of KubeVirt that an API server would call, one after the other.
func (c *cluster) judge(asked *question) (answer, error) {
	kind := struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
	}{}
	if err := json.Unmarshal(asked.Object, &kind); err != nil {
		return answer{}, fmt.Errorf("not an object: %w", err)
	}
	config, err := c.config(asked.KubeVirt)
	if err != nil {
		return answer{}, err
	}
	if err := c.hold(asked.Objects); err != nil {
		return answer{}, err
	}
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create,
		Namespace: kind.Metadata.Namespace,
		Name:      kind.Metadata.Name,
		UserInfo:  authenticationv1.UserInfo{Username: asked.User},
		Object:    runtime.RawExtension{Raw: asked.Object},
	}}
	if strings.EqualFold(asked.Operation, string(admissionv1.Update)) {
		review.Request.Operation = admissionv1.Update
		review.Request.OldObject = runtime.RawExtension{Raw: asked.Old}
	}

	accounts := webhooks.KubeVirtServiceAccounts(kubeVirtNamespace)
	switch kind.Kind {
	case v1.VirtualMachineInstanceGroupVersionKind.Kind:
		review.Request.Resource = webhooks.VirtualMachineInstanceGroupVersionResource
		mutate := &mutators.VMIsMutator{ClusterConfig: config, VMIPresetInformer: c.presets, KubeVirtServiceAccounts: accounts}
		if review.Request.Operation == admissionv1.Update {
			return run(review, mutate, admitters.NewVMIUpdateAdmitter(config, accounts))
		}
		return run(review, mutate, &admitters.VMICreateAdmitter{
			ClusterConfig:           config,
			KubeVirtServiceAccounts: accounts,
			SpecValidators:          []admitters.SpecValidator{networkRules},
		})
	case v1.VirtualMachineGroupVersionKind.Kind:
		review.Request.Resource = webhooks.VirtualMachineGroupVersionResource
		admit := admitters.NewVMsAdmitter(config, c.client, &webhooks.Informers{}, accounts)
		return run(review, mutators.NewVMsMutator(config, c.client), admit)
	default:
		return answer{}, fmt.Errorf("the judge knows VirtualMachine and VirtualMachineInstance, not %q", kind.Kind)
	}
}

// networkRules is what virt-api plugs into the webhook for new VMIs.
func networkRules(field *k8sfield.Path, spec *v1.VirtualMachineInstanceSpec, config *virtconfig.ClusterConfig) []metav1.StatusCause {
	return netadmitter.Validate(field, spec, config)
}

func run(review *admissionv1.AdmissionReview, mutate mutator, admit admitter) (answer, error) {
	response := mutate.Mutate(review)
	if !response.Allowed {
		return refusal(response), nil
	}
	object, err := patched(review.Request.Object.Raw, response.Patch)
	if err != nil {
		return answer{}, err
	}
	warnings := response.Warnings

	review.Request.Object.Raw = object
	response = admit.Admit(context.Background(), review)
	result := refusal(response)
	result.Object = object
	result.Warnings = append(warnings, response.Warnings...)
	return result, nil
}

// patched applies a patch of KubeVirt's webhooks: they replace whole parts of the object at its top level.
func patched(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	var steps []struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(patch, &steps); err != nil {
		return nil, fmt.Errorf("cannot read KubeVirt's patch: %w", err)
	}
	parts := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &parts); err != nil {
		return nil, fmt.Errorf("cannot read the object: %w", err)
	}
	for _, step := range steps {
		part := strings.TrimPrefix(step.Path, "/")
		if step.Op != "replace" || strings.Contains(part, "/") {
			return nil, fmt.Errorf("KubeVirt's patch holds a step unknown to the judge: %s %s", step.Op, step.Path)
		}
		parts[part] = step.Value
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("cannot write the object: %w", err)
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, fmt.Errorf("cannot read the patched object: %w", err)
	}
	return json.Marshal(withoutNulls(whole))
}

// withoutNulls leaves out the nulls that Go's encoder writes: an API server removes them before it goes on.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if field == nil {
				delete(value, name)
			} else {
				value[name] = withoutNulls(field)
			}
		}
	case []any:
		for index, item := range value {
			value[index] = withoutNulls(item)
		}
	}
	return value
}

// refusal sorts what a webhook answers. A refusal without causes is an error text.
func refusal(response *admissionv1.AdmissionResponse) answer {
	result := answer{Causes: []cause{}}
	if response.Allowed {
		return result
	}
	if response.Result == nil || response.Result.Details == nil || len(response.Result.Details.Causes) == 0 {
		result.Error = "refused without a reason"
		if response.Result != nil {
			result.Error = response.Result.Message
		}
		return result
	}
	// KubeVirt reports at most ten causes by cutting the slice that holds all of them: the others are still behind it.
	causes := response.Result.Details.Causes
	for _, found := range causes[:cap(causes)] {
		switch {
		case found == metav1.StatusCause{}:
		case found.Type == "" && found.Field == "":
			result.Schema = append(result.Schema, found.Message)
		default:
			result.Causes = append(result.Causes, cause{Type: string(found.Type), Field: found.Field, Message: found.Message})
		}
	}
	return result
}
