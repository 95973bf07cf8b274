"""All targets, in the order in which they are listed."""

from __future__ import annotations

from paceline.reproduce import (
    dc_asgd_accuracy,
    elasticbsp_accuracy,
    elasticbsp_fig4,
    esync_accuracy,
    esync_speed,
    esync_splits,
    fluentps_accuracy,
    fluentps_fig6,
    fluentps_fig9,
    fluentps_table4,
    psp_accuracy,
    psp_table1,
    zipline_table2,
)
from paceline.reproduce.target import Target

TARGETS: dict[str, Target] = {
    module.TARGET.name: module.TARGET
    for module in (
        elasticbsp_fig4,
        zipline_table2,
        fluentps_fig6,
        fluentps_fig9,
        fluentps_table4,
        psp_table1,
        esync_speed,
        elasticbsp_accuracy,
        fluentps_accuracy,
        psp_accuracy,
        esync_accuracy,
        esync_splits,
        dc_asgd_accuracy,
    )
}
