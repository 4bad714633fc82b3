"""Plans in the dashboard: their forms, the desk that makes and carries them out, and how they and their runs look.

Only ``desk`` acts: it has ``solving`` make a plan and ``engine.admin.reassignment`` carry it out. ``forms`` asks for a
plan's options, ``opened_plan`` is the open plan, ``plan_run`` the current run, and ``card`` draws both.
"""
