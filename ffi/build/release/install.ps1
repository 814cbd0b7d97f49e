# Installs forge for this user on Windows: downloads its npm packages and Deno's, checks the SHA-256 of
# forge's, and installs them with npm into a folder of their own.
#
#   $env:FORGE_RELEASE  address of the folder of the release
#   $env:FORGE_HOME     folder of the files (default: %LOCALAPPDATA%\forge\app)

# A scope of its own: piped into the shell, the script would change the settings of the session.
& {
  $ErrorActionPreference = "Stop"
  $ProgressPreference = "SilentlyContinue" # the bar slows downloads down
  [Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12
  $release = if ($env:FORGE_RELEASE) { $env:FORGE_RELEASE } else { "@RELEASE@" }
  $folder = if ($env:FORGE_HOME) { $env:FORGE_HOME } else { "$env:LOCALAPPDATA\forge\app" }

  if ($env:PROCESSOR_ARCHITECTURE -ne "AMD64") {
    throw "forge: no packages for the processor $env:PROCESSOR_ARCHITECTURE; valid is AMD64"
  }
  # Not npm.ps1, which many systems forbid to run.
  if (-not (Get-Command npm.cmd -ErrorAction SilentlyContinue)) {
    throw "forge: npm is missing; install Node.js, for example with: winget install OpenJS.NodeJS.LTS"
  }

  $work = Join-Path ([IO.Path]::GetTempPath()) ([Guid]::NewGuid())
  New-Item -ItemType Directory $work | Out-Null
  try {
    Invoke-WebRequest -UseBasicParsing "$release/SHA256SUMS" -OutFile "$work\SHA256SUMS"
    $sums = @{}
    foreach ($line in Get-Content "$work\SHA256SUMS") {
      $sum, $name = $line -split "  ", 2
      $sums[$name] = $sum
    }
    $names = "forge-llm-win32-x64.tgz", "forge-llm.tgz"
    if (Test-Path "$env:SystemRoot\System32\nvcuda.dll") { $names += "forge-llm-win32-x64-cuda.tgz" }
    $packages = foreach ($name in $names) {
      if (-not $sums[$name]) { throw "forge: the release has no $name" }
      Invoke-WebRequest -UseBasicParsing "$release/$name" -OutFile "$work\$name"
      $actual = (Get-FileHash -Algorithm SHA256 "$work\$name").Hash.ToLower()
      if ($actual -ne $sums[$name]) {
        throw "forge: the SHA-256 of $name is $actual, not $($sums[$name]); try again"
      }
      "$work\$name"
    }
    npm.cmd install --global --prefix $folder --loglevel=error --no-fund --no-audit @packages
    if ($LASTEXITCODE -ne 0) { throw "forge: npm could not install the packages" }
  } finally {
    Remove-Item -Recurse -Force $work
  }
  Write-Output "installed $(& "$folder\forge.cmd" --version) as $folder\forge.cmd"
  if (($env:PATH -split ";") -notcontains $folder) {
    Write-Output "to find it by name, add its folder to PATH: $folder"
  }
}
