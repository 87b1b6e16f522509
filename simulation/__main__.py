"""python -m simulation: see `simulation.command`."""

from simulation.command import main

if __name__ == "__main__":
    main()
