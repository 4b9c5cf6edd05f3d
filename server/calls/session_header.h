// The header by which an answer names its session, so that a proxy learns where the session lives.
#pragma once

namespace runnel {

// Initial metadata of gRPC, and a header of HTTP. Clients may send it for the proxy's sake; the
// server does not read it.
inline constexpr const char* kSessionHeader = "x-session-id";

}  // namespace runnel
