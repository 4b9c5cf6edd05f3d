// /openapi.json: one document with the paths of all doors that use HTTP.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace runnel {

struct ServerContext;

// The components that the doors share, and the path of the document: openapi.json of this folder.
std::string_view shared_description();

// The shared description with the paths and components of `doors`, which must all be different. The
// name of a limit in place of a number ("limits.samples") is replaced by the limit of this server.
std::string joined_description(std::span<const std::string_view> doors, const ServerContext& state);

}  // namespace runnel
