"""Reads the names that the images of scenarios have at a site from the site file."""

from deployment.bundle.registry import parse_reference
from deployment.errors import BundleError
from deployment.site import Site
from validation.errors import HostError
from validation.scenario.images import ImageMap, whole_name


def read_images(site: Site) -> ImageMap:
    """Return the site's names of images: for each image `validation.images`, else the name under which `muster bundle
    push` stores it.

    Raises HostError for an image of the bundle with an invalid name.
    """
    registry = site.get("validation", "registry", default="")
    names = {}
    for name in site.get("bundle", "images", default=[]) if registry else ():
        try:
            reference = parse_reference(name)
        except BundleError as error:
            raise HostError(str(error)) from error
        end = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
        names[whole_name(name)] = f"{registry}/{reference.path}{end}"
    for name, image in site.get("validation", "images", default={}).items():
        names[whole_name(name)] = image
    return ImageMap(names)
