"""The synchronization models, one file each. These lines are the registry: what is imported here has a name."""

from __future__ import annotations

from paceline.sync.models.asp import ASP as ASP
from paceline.sync.models.base import Model as Model
from paceline.sync.models.bsp import BSP as BSP
from paceline.sync.models.dc_asgd import DCASGD as DCASGD
from paceline.sync.models.drop import DropStragglers as DropStragglers
from paceline.sync.models.dsps import DSPS as DSPS
from paceline.sync.models.dssp import DSSP as DSSP
from paceline.sync.models.elastic_bsp import ElasticBSP as ElasticBSP
from paceline.sync.models.esync import ESync as ESync
from paceline.sync.models.psp import PSP as PSP
from paceline.sync.models.pssp import PSSP as PSSP
from paceline.sync.models.ssp import SSP as SSP
