"""Plans in the dashboard: their forms, the desk that makes and carries them out, and how they and their runs look.

``desk`` is the only one that acts: it has a plan made by ``solving`` and carried out by ``engine.admin.reassignment``.
``forms`` asks for a plan's options, ``opened_plan`` is the plan that is open, ``plan_run`` the run that goes on, and
``card`` draws both.
"""
