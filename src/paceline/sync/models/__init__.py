"""The synchronization models, one file each. To add one, write its file and name it here."""

from __future__ import annotations

from paceline.sync.models.asp import ASP
from paceline.sync.models.base import Model
from paceline.sync.models.bsp import BSP
from paceline.sync.models.drop import DropStragglers
from paceline.sync.models.dsps import DSPS
from paceline.sync.models.dssp import DSSP
from paceline.sync.models.elastic_bsp import ElasticBSP
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.sync.models.pssp import PSSP
from paceline.sync.models.ssp import SSP

MODELS: dict[str, type[Model]] = {
    model.name: model for model in (BSP, ASP, SSP, DSPS, DSSP, DropStragglers, PSSP, ElasticBSP, PSP, ESync)
}
