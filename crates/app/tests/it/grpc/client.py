"""A gRPC client for the tests, on Google's own library.

Envoy's messages are those of the gRPC project's package of Envoy's public protos, not ours. Ours are learned from the server's
reflection. Reads one call per line as JSON, writes one answer per line.
"""

import json
import sys

import grpc
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
reflected = ProtoReflectionDescriptorDatabase(channel)
pool = DescriptorPool(reflected)
PUBLIC = {
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit": (rls_pb2.RateLimitRequest, rls_pb2.RateLimitResponse),
    "/grpc.health.v1.Health/Check": (health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse),
}


def messages(method):
    if method not in PUBLIC:
        service, name = method[1:].split("/")
        found = pool.FindServiceByName(service).FindMethodByName(name)
        PUBLIC[method] = tuple(map(message_factory.GetMessageClass, (found.input_type, found.output_type)))
    return PUBLIC[method]


def watch(call):
    """Begins to watch the server's health, or tells what was seen until the server ended it."""
    global watching
    if call["watch"] == "begin":
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        return {"seen": next(watching).status}
    seen = []
    try:
        seen.extend(status.status for status in watching)
    except grpc.RpcError as error:
        return {"seen": seen, "code": error.code().name}
    return {"seen": seen}


def answer(call):
    if "watch" in call:
        return watch(call)
    if call.get("services"):
        return {"services": list(reflected.get_services())}
    method, metadata = call["method"], list(call.get("metadata", {}).items())
    try:
        if "raw" in call:
            say = channel.unary_unary(method)
            say(bytes.fromhex(call["raw"]), metadata=metadata, timeout=20)
            return {"ok": {}}
        asked, told = messages(method)
        request = json_format.ParseDict(call["request"], asked())
        say = channel.unary_unary(method, request_serializer=asked.SerializeToString, response_deserializer=told.FromString)
        told = say(request, metadata=metadata, timeout=20)
        return {"ok": json_format.MessageToDict(told, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)}
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())
        return {"code": error.code().name, "message": error.details(), "reason": trailing.get("tidegate-code")}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
