//! The Node service: volumes at paths of Pods.

use tonic::{Request, Response, Status};
use volumeplan::{Capability, Publish};

use super::Driver;
use super::convert::{self, range, signed};
use super::v1::node_server::Node;
use super::v1::node_service_capability::rpc::Type as Kind;
use super::v1::node_service_capability::{Rpc, Type};
use super::v1::volume_usage::Unit;
use super::v1::{self, VolumeUsage};
use crate::engine::Usage;

const CAPABILITIES: [Kind; 3] = [Kind::GetVolumeStats, Kind::ExpandVolume, Kind::SingleNodeMultiWriter];

#[tonic::async_trait]
impl Node for Driver {
    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let nothing = Capability { access: None, mode: None };
        let capability = request.volume_capability.map_or(nothing, convert::capability);
        if capability.access.is_none() {
            return Err(Status::invalid_argument("the request has no volume capability with block or mount"));
        }
        let (id, publish) =
            (request.volume_id, Publish { target: request.target_path, read_only: request.readonly, capability });
        self.run(move |engine| engine.publish(&id, &publish)).await?;
        Ok(Response::new(v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let v1::NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        self.run(move |engine| engine.unpublish(&volume_id, &target_path)).await?;
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let v1::NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        let Usage { total, used, available, inodes } =
            self.run(move |engine| engine.usage(&volume_id, &volume_path)).await?;
        let entry = |unit: Unit, (total, used, available): (u64, u64, u64)| VolumeUsage {
            unit: unit.into(),
            total: signed(total),
            used: signed(used),
            available: signed(available),
        };
        let inodes = inodes.map(|inodes| entry(Unit::Inodes, inodes));
        let usage = [entry(Unit::Bytes, (total, used, available))].into_iter().chain(inodes).collect();
        Ok(Response::new(v1::NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path, range) = (request.volume_id, request.volume_path, range(request.capacity_range));
        let capacity = self.run(move |engine| engine.grow_on_node(&id, &path, range)).await?;
        Ok(Response::new(v1::NodeExpandVolumeResponse { capacity_bytes: signed(capacity) }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        let capability =
            |kind: Kind| v1::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) };
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).into() }))
    }

    async fn node_get_info(
        &self,
        _: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: self.engine.node().as_str().to_owned(),
            // Loop devices and mounts have no limit of their own.
            max_volumes_per_node: 0,
            accessible_topology: convert::topology(self.engine.reach()),
        }))
    }
}
