package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	k8sv1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/hooks"
	"kubevirt.io/kubevirt/pkg/network/netbinding"
	netannotations "kubevirt.io/kubevirt/pkg/network/pod/annotations"
	netresources "kubevirt.io/kubevirt/pkg/network/resources"
	storageannotations "kubevirt.io/kubevirt/pkg/storage/pod/annotations"
	storagetypes "kubevirt.io/kubevirt/pkg/storage/types"
	"kubevirt.io/kubevirt/pkg/util"
	"kubevirt.io/kubevirt/pkg/virt-controller/services"
)

// The settings that virt-controller gets as flags, at their defaults where they have one.
const (
	launcherImage    = "virt-launcher"
	exporterImage    = "virt-exportserver"
	qemuTimeout      = 240
	ephemeralDiskDir = util.VirtShareDir + "-ephemeral-disks"
	launcherSubGid   = 107
)

// pods is what the template service of the present question reads, beside the client.
type pods struct {
	claims, quotas, namespaces cache.Store
	// services are the template services made so far, by the text of the KubeVirt object.
	services map[string]*services.TemplateService
}

func newPods() pods {
	store := func() cache.Store { return cache.NewStore(cache.MetaNamespaceKeyFunc) }
	return pods{store(), store(), store(), map[string]*services.TemplateService{}}
}

// hold keeps the objects that the template service finds in informers.
func (p *pods) hold(objects []any) error {
	var claims, quotas, namespaces []any
	for _, object := range objects {
		switch object.(type) {
		case *k8sv1.PersistentVolumeClaim:
			claims = append(claims, object)
		case *k8sv1.ResourceQuota:
			quotas = append(quotas, object)
		case *k8sv1.Namespace:
			namespaces = append(namespaces, object)
		}
	}
	for _, kept := range []struct {
		store   cache.Store
		objects []any
	}{{p.claims, claims}, {p.quotas, quotas}, {p.namespaces, namespaces}} {
		if err := kept.store.Replace(kept.objects, ""); err != nil {
			return fmt.Errorf("cannot keep the objects of the cluster: %w", err)
		}
	}
	return nil
}

// templates is the template service as virt-controller sets it up.
func (c *cluster) templates(asked *question) (*services.TemplateService, error) {
	key := string(asked.KubeVirt)
	if service, known := c.pods.services[key]; known {
		return service, nil
	}
	config, err := c.config(asked.KubeVirt)
	if err != nil {
		return nil, err
	}
	network := netannotations.NewGenerator(config)
	service := services.NewTemplateService(
		launcherImage,
		qemuTimeout,
		util.VirtShareDir,
		ephemeralDiskDir,
		filepath.Join(util.VirtShareDir, "container-disks"),
		filepath.Join(util.VirtShareDir, "hotplug-disks"),
		asked.PullSecret,
		c.pods.claims,
		c.client,
		config,
		launcherSubGid,
		exporterImage,
		c.pods.quotas,
		c.pods.namespaces,
		services.WithSidecarCreator(func(vmi *v1.VirtualMachineInstance, _ *v1.KubeVirtConfiguration) (hooks.HookSidecarList, error) {
			return hooks.UnmarshalHookSidecarList(vmi)
		}),
		services.WithSidecarCreator(netbinding.NetBindingPluginSidecarList),
		services.WithNetMemoryCalculator(netresources.MemoryCalculator{}),
		services.WithAnnotationsGenerators(network, storageannotations.Generator{}),
		services.WithNetTargetAnnotationsGenerator(network),
	)
	c.pods.services[key] = service
	return service, nil
}

// render answers with a Pod instead of a verdict.
func (c *cluster) render(asked *question) (answer, error) {
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(asked.Object, vmi); err != nil {
		return answer{}, fmt.Errorf("not an instance: %w", err)
	}
	if err := c.hold(asked.Objects); err != nil {
		return answer{}, err
	}
	templates, err := c.templates(asked)
	if err != nil {
		return answer{}, err
	}
	pod, err := c.rendered(templates, asked, vmi)
	if err != nil {
		return answer{Error: err.Error()}, nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return answer{}, fmt.Errorf("cannot write the Pod: %w", err)
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		return answer{}, fmt.Errorf("cannot read the Pod: %w", err)
	}
	text, err = json.Marshal(withoutNulls(whole))
	return answer{Object: text, Causes: []cause{}}, err
}

func (c *cluster) rendered(templates *services.TemplateService, asked *question, vmi *v1.VirtualMachineInstance) (*k8sv1.Pod, error) {
	launcher := &k8sv1.Pod{}
	if len(asked.Launcher) > 0 {
		if err := json.Unmarshal(asked.Launcher, launcher); err != nil {
			return nil, fmt.Errorf("not a Pod: %w", err)
		}
	}
	switch asked.Pod {
	case "launcher":
		return templates.RenderLaunchManifest(vmi)
	case "first-consumer":
		return templates.RenderLaunchManifestNoVm(vmi)
	case "migration-target":
		migration := &v1.VirtualMachineInstanceMigration{}
		if err := json.Unmarshal(asked.Migration, migration); err != nil {
			return nil, fmt.Errorf("not a migration: %w", err)
		}
		return templates.RenderMigrationManifest(vmi, migration, launcher)
	case "attachment":
		volumes, claims := c.attached(vmi, asked.Volumes)
		return templates.RenderHotplugAttachmentPodTemplate(volumes, launcher, vmi, claims)
	case "trigger":
		volumes, claims := c.attached(vmi, asked.Volumes)
		if len(volumes) != 1 || claims[volumes[0].Name] == nil {
			return nil, fmt.Errorf("a trigger is for one volume with a claim, not for %v", asked.Volumes)
		}
		claim := claims[volumes[0].Name]
		isBlock := storagetypes.IsPVCBlock(claim.Spec.VolumeMode)
		return templates.RenderHotplugAttachmentTriggerPodTemplate(volumes[0], launcher, vmi, claim.Name, isBlock, true)
	default:
		return nil, fmt.Errorf("the judge renders no %q", asked.Pod)
	}
}

// attached finds the named volumes of an instance, and the claims behind them.
func (c *cluster) attached(vmi *v1.VirtualMachineInstance, names []string) ([]*v1.Volume, map[string]*k8sv1.PersistentVolumeClaim) {
	var volumes []*v1.Volume
	claims := map[string]*k8sv1.PersistentVolumeClaim{}
	for _, name := range names {
		for index := range vmi.Spec.Volumes {
			volume := &vmi.Spec.Volumes[index]
			if volume.Name != name {
				continue
			}
			volumes = append(volumes, volume)
			key := vmi.Namespace + "/" + storagetypes.PVCNameFromVirtVolume(volume)
			if claim, exists, _ := c.pods.claims.GetByKey(key); exists {
				claims[name] = claim.(*k8sv1.PersistentVolumeClaim)
			}
		}
	}
	return volumes, claims
}
