# gRPC and protobuf from archives, for a program that needs libc and libm alone. pkg-config names the
# archives; the linker goes round them until nothing is missing, because they need each other.
find_package(PkgConfig REQUIRED)
set(PKG_CONFIG_ARGN --static)
pkg_check_modules(GRPC REQUIRED grpc++ protobuf)
find_library(GRPC_REFLECTION grpc++_reflection REQUIRED)
set(archives ${GRPC_REFLECTION} ${GRPC_LINK_LIBRARIES})
list(FILTER archives INCLUDE REGEX "\\.a$")
list(REMOVE_DUPLICATES archives)
list(JOIN archives "," archives)
target_link_libraries(runnel_grpc INTERFACE "$<LINK_GROUP:RESCAN,${archives}>" Threads::Threads)
target_link_options(runnel_grpc INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
