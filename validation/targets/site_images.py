"""Reads from the site file by which names a site has the images of scenarios."""

from deployment.bundle.registry import parse_reference
from deployment.errors import BundleError
from deployment.site import Site
from validation.errors import HostError
from validation.scenario.images import ImageMap, whole_name


def read_images(site: Site) -> ImageMap:
    """Return the name of each image at the site: the one in `validation.images`, else that of `muster bundle push`.

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
