"""Scripts for `paceline run`, as text."""

from __future__ import annotations

HEAD = """
import sys, time
from pathlib import Path
import torch
import paceline

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.01))

def step():
    opt.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    opt.step()

"""
SHORT = HEAD + "for _ in range(10): step()\nprint(f'done {opt.rank} {opt.world_size} {sys.argv[1:]}\\n', end='')\n"
UNTIL_TOLD = HEAD + "while not Path(sys.argv[1]).exists(): step()\n"
ENDLESS = HEAD + "print('begun', flush=True)\nwhile True: step()\n"
RAISES = HEAD + "step()\nif opt.rank == 1: raise ValueError('the data is gone')\nwhile True: step()\n"
LEAVES = HEAD + "step()\nsys.exit(3)\n"
NOT_FINITE = HEAD + "(model(torch.ones(1, 4)).sum() * torch.inf).backward()\nfor _ in range(3): opt.step()\n"
DIVERGES = HEAD + "while True:\n    step()\n    torch.nn.init.constant_(model.weight, torch.nan)\n"
FORGETS = "print('nothing to see')\n"
TWICE = HEAD + "paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.01))\n"
CYCLES = HEAD + "opt.param_groups[0]['momentum'] = 0.5\nstep()\n"
