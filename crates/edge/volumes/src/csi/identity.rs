//! The Identity service: who the driver is and what it can do.

use tonic::{Request, Response, Status};
use volumeplan::Reach;

use super::Driver;
use super::v1::identity_server::Identity;
use super::v1::plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion};
use super::v1::{
    BoolValue, GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (self.name.to_string(), self.version.to_string());
        Ok(Response::new(GetPluginInfoResponse { name, vendor_version }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |kind: service::Type| plugin_capability::Type::Service(Service { r#type: kind.into() });
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let mut all = vec![service(service::Type::ControllerService), plugin_capability::Type::VolumeExpansion(online)];
        if matches!(self.engine.reach(), Reach::Local(_)) {
            all.push(service(service::Type::VolumeAccessibilityConstraints));
        }
        let capabilities = all.into_iter().map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Ready while the pool can be read.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let probed = self.run(|engine| engine.available(&[], None)).await;
        probed.map_err(|status| Status::failed_precondition(status.message()))?;
        Ok(Response::new(ProbeResponse { ready: Some(BoolValue { value: true }) }))
    }
}
