//! The Controller service: volumes and snapshots.

use tonic::{Request, Response, Status};
use volumeplan::{create, snapshot};

use super::Driver;
use super::convert::{self, capabilities, parameters, range, signed};
use super::v1::controller_server::Controller;
use super::v1::controller_service_capability::rpc::Type as Rpc;
use super::v1::validate_volume_capabilities_response::Confirmed;
use super::v1::{self, controller_get_volume_response, list_snapshots_response, list_volumes_response};

const CAPABILITIES: [Rpc; 9] = [
    Rpc::CreateDeleteVolume,
    Rpc::ListVolumes,
    Rpc::GetCapacity,
    Rpc::CreateDeleteSnapshot,
    Rpc::ListSnapshots,
    Rpc::CloneVolume,
    Rpc::ExpandVolume,
    Rpc::GetVolume,
    Rpc::SingleNodeMultiWriter,
];

#[tonic::async_trait]
impl Controller for Driver {
    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Result<Response<v1::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let wanted = create::Request {
            name: request.name,
            range: range(request.capacity_range),
            capabilities: capabilities(request.volume_capabilities),
            parameters: parameters(request.parameters, request.mutable_parameters),
            from: request.volume_content_source.map(convert::copy_of),
            topology: convert::requirement(request.accessibility_requirements),
        };
        let volume = self.copy(move |engine| engine.create_volume(&wanted)).await?;
        let volume = Some(convert::volume(volume, self.engine.reach()));
        Ok(Response::new(v1::CreateVolumeResponse { volume }))
    }

    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Result<Response<v1::DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        self.run(move |engine| engine.delete_volume(&id)).await?;
        Ok(Response::new(v1::DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<v1::ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
        };
        let (id, wanted) = (request.volume_id, capabilities(request.volume_capabilities));
        let parameters = parameters(request.parameters, request.mutable_parameters);
        let answer = match self.run(move |engine| engine.validate(&id, &wanted, &parameters)).await? {
            Ok(()) => v1::ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() },
            Err(message) => v1::ValidateVolumeCapabilitiesResponse { confirmed: None, message },
        };
        Ok(Response::new(answer))
    }

    async fn list_volumes(
        &self,
        request: Request<v1::ListVolumesRequest>,
    ) -> Result<Response<v1::ListVolumesResponse>, Status> {
        let request = request.into_inner();
        let list = move |engine: &crate::Engine| engine.list_volumes(request.max_entries, &request.starting_token);
        let listed = self.run(list).await?;
        let entry = |volume| list_volumes_response::Entry {
            volume: Some(convert::volume(volume, self.engine.reach())),
            status: None,
        };
        let entries = listed.entries.into_iter().map(entry).collect();
        Ok(Response::new(v1::ListVolumesResponse { entries, next_token: listed.next.unwrap_or_default() }))
    }

    async fn get_capacity(
        &self,
        request: Request<v1::GetCapacityRequest>,
    ) -> Result<Response<v1::GetCapacityResponse>, Status> {
        let request = request.into_inner();
        let wanted = capabilities(request.volume_capabilities);
        let place = request.accessible_topology.map(convert::segments);
        let bytes = self.run(move |engine| engine.available(&wanted, place.as_ref())).await?;
        Ok(Response::new(v1::GetCapacityResponse {
            available_capacity: signed(bytes),
            maximum_volume_size: Some(v1::Int64Value { value: signed(bytes.min(volumeplan::MAX_SIZE)) }),
            minimum_volume_size: None,
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<v1::ControllerGetCapabilitiesResponse>, Status> {
        use v1::controller_service_capability::{Rpc, Type};
        let capability = |kind: super::v1::controller_service_capability::rpc::Type| v1::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = CAPABILITIES.map(capability).into();
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<v1::CreateSnapshotRequest>,
    ) -> Result<Response<v1::CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let wanted = snapshot::Request {
            name: request.name,
            source: request.source_volume_id,
            parameters: parameters(request.parameters, Default::default()),
        };
        let snapshot = self.copy(move |engine| engine.create_snapshot(&wanted)).await?;
        Ok(Response::new(v1::CreateSnapshotResponse { snapshot: Some(convert::snapshot(snapshot)) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<v1::DeleteSnapshotRequest>,
    ) -> Result<Response<v1::DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().snapshot_id;
        self.run(move |engine| engine.delete_snapshot(&id)).await?;
        Ok(Response::new(v1::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<v1::ListSnapshotsRequest>,
    ) -> Result<Response<v1::ListSnapshotsResponse>, Status> {
        let v1::ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id } =
            request.into_inner();
        let list = move |engine: &crate::Engine| {
            engine.list_snapshots(&snapshot_id, &source_volume_id, max_entries, &starting_token)
        };
        let listed = self.run(list).await?;
        let entry = |from| list_snapshots_response::Entry { snapshot: Some(convert::snapshot(from)) };
        let entries = listed.entries.into_iter().map(entry).collect();
        Ok(Response::new(v1::ListSnapshotsResponse { entries, next_token: listed.next.unwrap_or_default() }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Result<Response<v1::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, range) = (request.volume_id, range(request.capacity_range));
        let grown = self.run(move |engine| engine.grow(&id, range)).await?;
        Ok(Response::new(v1::ControllerExpandVolumeResponse {
            capacity_bytes: signed(grown.capacity),
            node_expansion_required: grown.on_node,
        }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<v1::ControllerGetVolumeRequest>,
    ) -> Result<Response<v1::ControllerGetVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        let (volume, users) = self.run(move |engine| engine.volume(&id)).await?;
        let mut nodes: Vec<String> =
            users.publications.into_iter().map(|publication| publication.node.into()).collect();
        nodes.sort();
        nodes.dedup();
        Ok(Response::new(v1::ControllerGetVolumeResponse {
            volume: Some(convert::volume(volume, self.engine.reach())),
            status: Some(controller_get_volume_response::VolumeStatus { published_node_ids: nodes }),
        }))
    }
}
