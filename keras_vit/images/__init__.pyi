from . import class_names as class_names
from .image_files import ImageFiles as ImageFiles
from .image_files import list_images as list_images
from .preprocessor import Preprocessor as Preprocessor
