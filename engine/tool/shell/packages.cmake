# Read by cpack once for each kind of package. A Debian package takes its libraries from other packages and has no
# part for measuring GPUs.
if(CPACK_GENERATOR STREQUAL "DEB")
    list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
    set(CPACK_INSTALL_CMAKE_PROJECTS "${build};dpe;ALL;/")
    set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
    if(CPACK_DEBIAN_PACKAGE_ARCHITECTURE) # of another processor: dpkg-shlibdeps looks for its libraries
        set(ENV{DEB_HOST_ARCH} ${CPACK_DEBIAN_PACKAGE_ARCHITECTURE})
    endif()
endif()
